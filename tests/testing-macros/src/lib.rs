//! `#[test]` that enters a function in the list of tests of `spile-testing`.

#![cfg_attr(not(test), warn(clippy::cast_lossless))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

use proc_macro::{TokenStream, TokenTree};

/// Registers a function without parameters and result as a test.
///
/// In a program that `spile_testing::main!` begins this takes the place of the built-in attribute,
/// whose tests cannot be skipped while they run.
#[proc_macro_attribute]
pub fn test(_: TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens = item.clone().into_iter();
    let is_fn = |t: &TokenTree| matches!(t, TokenTree::Ident(word) if word.to_string() == "fn");
    let name = match (tokens.find(is_fn), tokens.next()) {
        (Some(_), Some(TokenTree::Ident(name))) => name,
        _ => return error("only functions are tests", item),
    };
    let entry = format!(
        "::spile_testing::inventory::submit! {{
            ::spile_testing::Test {{ module: module_path!(), name: \"{name}\", run: {name} }}
        }}"
    );
    match entry.parse::<TokenStream>() {
        Ok(entry) => [item, entry].into_iter().collect(),
        Err(_) => error("the name of the test", item),
    }
}

fn error(why: &str, item: TokenStream) -> TokenStream {
    let error = format!("::core::compile_error! {{ {why:?} }}");
    let error = error.parse::<TokenStream>();
    error.into_iter().chain([item]).collect()
}

//! Demangles linker names to source names.

use cpp_demangle::{DemangleOptions, Symbol};

/// Maximum length of a mangled name; longer ones would take too long.
const MAX_LEN: usize = 8192;

/// The source name without parameters and return type: `ns::Class::method`,
/// `core::fmt::Write::write_str`. `None` if the name is not mangled.
#[must_use]
pub fn short_name(name: &str) -> Option<String> {
    demangle(name, DemangleOptions::new().no_params().no_return_type())
}

/// The source name with parameters: `ns::f(int, char const*)`.
#[must_use]
pub fn full(name: &str) -> Option<String> {
    demangle(name, DemangleOptions::new().no_return_type())
}

fn demangle(name: &str, options: DemangleOptions) -> Option<String> {
    if name.len() > MAX_LEN || !(name.starts_with("_Z") || name.starts_with("_R")) {
        return None;
    }
    // Old Rust names are C++ names with a hash, so Rust goes first.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return Some(format!("{rust:#}"));
    }
    let symbol = Symbol::new(name).ok()?;
    symbol.demangle_with_options(&options).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_cplusplus_and_rust_are_demangled() {
        for (mangled, short, full) in [
            (
                "_ZN2ns5Class6methodEi",
                "ns::Class::method",
                "ns::Class::method(int)",
            ),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
                "core::fmt::Write::write_fmt",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar", "123foo::bar"),
        ] {
            assert_eq!(super::short_name(mangled).as_deref(), Some(short));
            assert_eq!(super::full(mangled).as_deref(), Some(full));
        }
        assert_eq!(super::short_name("main"), None);
        assert_eq!(super::short_name("_Z"), None);
    }
}

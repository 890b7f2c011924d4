//! The structure of the sources: import cycles, layers, tables of modules, names of public types, lengths of
//! functions, parameters, `unsafe`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use spile_testing::files::{below, root};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Maximum number of files in an import cycle.
const CYCLE: usize = 3;

/// Maximum length of a function in lines, except of tables.
const LINES: usize = 80;

/// Shipped code that may contain `unsafe`, as in CONTRIBUTING.md.
const UNSAFE: &[&str] = &[
    "crates/kernel/src",
    "crates/runtime/src",
    "crates/debuginfo/src",
    "crates/inject/src",
    "crates/native/src",
    "crates/sdt/src",
    "crates/tools/src",
];

/// The facts about a source file that the tests use.
struct Source {
    krate: String,
    path: PathBuf,
    /// Its path in the module tree: `["lower", "text"]`.
    module: Vec<String>,
    text: String,
    /// The modules that it declares in files of their own.
    declares: Vec<String>,
    /// The targets of its `use` items, from the root of the crate.
    imports: Vec<Vec<String>>,
    /// The targets of its other paths.
    paths: Vec<Vec<String>>,
    types: Vec<String>,
    functions: Functions,
    unsafe_lines: Vec<usize>,
}

/// All source files except those of tests.
static SOURCES: LazyLock<Vec<Source>> =
    LazyLock::new(|| crates().iter().flat_map(|krate| read(krate)).collect());

/// The files of a crate.
fn sources(krate: &str) -> Vec<&'static Source> {
    SOURCES.iter().filter(|s| s.krate == krate).collect()
}

fn read(krate: &str) -> Vec<Source> {
    let top = root().join("crates").join(krate).join("src");
    let is_test = |path: &Path| {
        path.iter()
            .any(|part| part == "tests" || part == "tests.rs")
    };
    let inner = |path: &Path| path.strip_prefix(&top).expect("below").with_extension("");
    below(&top, &["rs"])
        .into_iter()
        .filter(|path| !is_test(path))
        .map(|path| {
            let inner = inner(&path);
            let parts = inner.iter().map(|p| p.to_string_lossy().into_owned());
            source(krate, path.clone(), parts.collect())
        })
        .collect()
}

fn source(krate: &str, path: PathBuf, mut module: Vec<String>) -> Source {
    let text = std::fs::read_to_string(&path).expect("text");
    let syntax = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if module
        .last()
        .is_some_and(|l| ["mod", "lib", "main"].contains(&&**l))
    {
        module.pop();
    }
    let declares = syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(m) if m.content.is_none() && !for_tests(&m.attrs) => {
            Some(m.ident.to_string())
        }
        _ => None,
    });
    let mut imports = Imports {
        module: &module,
        found: Vec::new(),
        paths: Vec::new(),
        depth: 0,
    };
    imports.visit_file(&syntax);
    let mut functions = Functions::default();
    functions.visit_file(&syntax);
    let mut types = Types::default();
    types.visit_file(&syntax);
    let mut unsafe_lines = Unsafe::default();
    unsafe_lines.visit_file(&syntax);
    Source {
        krate: krate.to_owned(),
        path,
        declares: declares.collect(),
        imports: imports.found,
        paths: imports.paths,
        types: types.0,
        functions,
        unsafe_lines: unsafe_lines.0,
        module,
        text,
    }
}

fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("crates"))
        .expect("crates")
        .flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The name of a file in messages.
fn location(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Whether an item is compiled for tests only.
fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("cfg")
            && a.parse_args::<syn::Ident>()
                .is_ok_and(|word| word == "test")
    })
}

/// Fails where a crate has more of `what` than `bound`, and lists all locations.
fn bounded(what: &str, found: &BTreeMap<String, Vec<String>>, bound: usize) {
    let wrong = found
        .iter()
        .filter(|(_, locations)| locations.len() > bound);
    let wrong: String = wrong
        .map(|(krate, locations)| {
            let list = locations.join("\n  ");
            format!(
                "{krate}: {} {what}, {bound} allowed:\n  {list}\n",
                locations.len()
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// The modules in the `use` items and the other paths of a file.
struct Imports<'a> {
    module: &'a [String],
    found: Vec<Vec<String>>,
    paths: Vec<Vec<String>>,
    depth: usize,
}

impl Imports<'_> {
    fn tree(&mut self, tree: &syn::UseTree, mut path: Vec<String>) {
        match tree {
            syn::UseTree::Path(p) => {
                path.push(p.ident.to_string());
                self.tree(&p.tree, path);
            }
            syn::UseTree::Name(n) => {
                path.push(n.ident.to_string());
                self.found.extend(self.absolute(path));
            }
            syn::UseTree::Rename(n) => {
                path.push(n.ident.to_string());
                self.found.extend(self.absolute(path));
            }
            syn::UseTree::Glob(_) => self.found.extend(self.absolute(path)),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.tree(t, path.clone())),
        }
    }

    /// A path from the root of the crate; `None` for other crates.
    fn absolute(&self, path: Vec<String>) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.module.to_vec(),
            // Within an inline module it is the file itself.
            "super" if self.depth > 0 => self.module.to_vec(),
            "super" => self.module[..self.module.len().checked_sub(1)?].to_vec(),
            _ => self.module.iter().cloned().chain([first.clone()]).collect(),
        };
        for word in rest {
            match word.as_str() {
                "super" => drop(at.pop()),
                "self" => {}
                _ => at.push(word.clone()),
            }
        }
        Some(at)
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !for_tests(&item.attrs) {
            self.tree(&item.tree, Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let words = path.segments.iter().map(|s| s.ident.to_string());
            self.paths.extend(self.absolute(words.collect()));
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !for_tests(&item.attrs) {
            self.depth += 1;
            visit::visit_item_mod(self, item);
            self.depth -= 1;
        }
    }
}

/// For each file, the files that it imports.
fn graph(files: &[&Source]) -> Vec<BTreeSet<usize>> {
    let by_module: BTreeMap<&[String], usize> = files
        .iter()
        .enumerate()
        .map(|(i, f)| (&f.module[..], i))
        .collect();
    files
        .iter()
        .enumerate()
        .map(|(i, file)| {
            let files = file.imports.iter().chain(&file.paths).filter_map(|path| {
                // The longest prefix that is a file; the rest is within the file.
                (0..=path.len())
                    .rev()
                    .find_map(|n| by_module.get(&path[..n]).copied())
            });
            files.filter(|f| *f != i).collect()
        })
        .collect()
}

/// The largest set of files that all lead to one another.
fn largest_cycle(graph: &[BTreeSet<usize>]) -> Vec<usize> {
    let reach: Vec<BTreeSet<usize>> = (0..graph.len())
        .map(|from| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(at) = next.pop() {
                next.extend(graph[at].iter().filter(|to| seen.insert(**to)));
            }
            seen
        })
        .collect();
    let circle = |a: usize| -> Vec<usize> {
        (0..graph.len())
            .filter(|b| reach[a].contains(b) && reach[*b].contains(&a))
            .collect()
    };
    (0..graph.len())
        .map(circle)
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

#[test]
fn circles_of_imports_are_small() {
    let circle = |krate: &String| {
        let files = sources(krate);
        let circle = largest_cycle(&graph(&files));
        circle.iter().map(|f| location(&files[*f].path)).collect()
    };
    let found = crates().into_iter().map(|krate| (circle(&krate), krate));
    let found = found.map(|(circle, krate)| (krate, circle)).collect();
    bounded("files that import one another in a circle", &found, CYCLE);
}

/// The words that a crate's header has if the rows of its table of modules are layers.
const LAYERS: &str = "The modules are layers";

/// The modules in the table of a crate's header, from the lowest layer on; `None` if they are no layers.
fn layers(krate: &str) -> Option<Vec<String>> {
    let top = sources(krate).into_iter().find(|s| s.module.is_empty())?;
    let header = top.text.lines().take_while(|l| l.starts_with("//!"));
    let header: Vec<&str> = header.collect();
    header.iter().any(|l| l.contains(LAYERS)).then(|| {
        let rows = header.iter().filter_map(|l| l.strip_prefix("//! | "));
        let names = rows.filter_map(|row| row.split('`').nth(1));
        names.map(str::to_owned).collect()
    })
}

#[test]
fn layers_import_only_from_lower_ones() {
    let mut wrong = Vec::new();
    for krate in crates() {
        let Some(layers) = layers(&krate) else {
            continue;
        };
        let layer = |module: &[String]| layers.iter().position(|l| Some(l) == module.first());
        for file in sources(&krate).iter().filter(|f| !f.module.is_empty()) {
            let own = layer(&file.module);
            let all = file.imports.iter().chain(&file.paths);
            let upwards = all.filter(|to| layer(to) > own);
            wrong.extend(upwards.map(|to| format!("{}: {}", location(&file.path), to.join("::"))));
        }
    }
    assert!(
        wrong.is_empty(),
        "imports from higher layers:\n{}",
        wrong.join("\n")
    );
}

/// The hosts in the runtime, which take objects. Everything else there serves every host; what hosts share with the
/// controller is in the crate `layout`.
const HOSTS: &[&[&str]] = &[
    &["attach"],
    &["load"],
    &["host", "kernel"],
    &["host", "process"],
];

/// Whether a file has one of these words in its code.
fn names_any(file: &Source, words: &[&str]) -> bool {
    let mut code = (file.text.lines()).filter(|l| !l.trim_start().starts_with("//"));
    code.any(|l| words.iter().any(|word| l.contains(word)))
}

/// Modules of the runtime whose tables come from the host, as `ByteTable`s.
const HOST_TABLES: &[&[&str]] = &[&["shared"], &["text", "user_files"]];

#[test]
fn tables_of_the_host_are_no_kernel_maps() {
    let all = sources("runtime").into_iter();
    let of_host = all.filter(|f| is_in(f, HOST_TABLES));
    let maps = ["spile_kernel::bpf", "map_fd", "KernelMap"];
    let wrong = of_host.filter(|f| names_any(f, &maps));
    let wrong: Vec<String> = wrong.map(|f| location(&f.path)).collect();
    assert!(wrong.is_empty(), "kernel maps in {}", wrong.join(", "));
}

/// Whether a file is one of these modules or below.
fn is_in(file: &Source, modules: &[&[&str]]) -> bool {
    let begins = |path: &[&str]| {
        path.len() <= file.module.len() && path.iter().zip(&file.module).all(|(a, b)| a == b)
    };
    modules.iter().any(|path| begins(path))
}

#[test]
fn only_hosts_know_ebpf() {
    let files = sources("runtime").into_iter();
    let files = files.filter(|file| !is_in(file, HOSTS));
    let all: Vec<_> = files.chain(sources("layout")).collect();
    let wrong = all
        .iter()
        .filter(|f| names_any(f, &["spile_bpf", "spile_ebpf"]));
    let wrong: Vec<String> = wrong.map(|f| location(&f.path)).collect();
    assert!(all.len() > 80, "{} files", all.len());
    assert!(
        wrong.is_empty(),
        "they name the BPF compiler: {}",
        wrong.join(", ")
    );
}

#[test]
fn headers_name_the_modules() {
    let mut wrong = Vec::new();
    for krate in crates() {
        for file in sources(&krate) {
            let header: String = file
                .text
                .lines()
                .take_while(|l| l.starts_with("//!"))
                .collect::<Vec<_>>()
                .join("\n");
            let tabular = header.lines().any(|l| l.starts_with("//! | module |"));
            if !tabular {
                continue;
            }
            // Names in backquotes, without the brackets of links and their targets.
            let named: BTreeSet<String> = header
                .split('`')
                .skip(1)
                .step_by(2)
                .flat_map(|n| {
                    n.split(['/', ',', ' '])
                        .map(|w| w.trim_end_matches(".rs").to_owned())
                })
                .collect();
            for module in file.declares.iter().filter(|m| !named.contains(*m)) {
                wrong.push(format!(
                    "{}: `{module}` is not in the table",
                    location(&file.path)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The header of a folder draws its stage: what comes in and what goes out.
#[test]
fn headers_of_folders_draw_their_stage() {
    let crates = crates();
    let folders = crates.iter().flat_map(|krate| sources(krate));
    let folders = folders.filter(|file| file.path.ends_with("mod.rs"));
    let wrong: Vec<String> = folders
        .filter(|file| {
            let header = file.text.lines().take_while(|l| l.starts_with("//!"));
            let header: String = header.map(|l| format!("{} ", l[3..].trim())).collect();
            !["In: ", "Out: "].iter().all(|word| header.contains(word))
        })
        .map(|file| location(&file.path))
        .collect();
    assert!(
        wrong.is_empty(),
        "no `In:` and `Out:`: {}",
        wrong.join(", ")
    );
}

/// Names of public types that several crates have: the idiom is a crate's own `Error`.
const SHARED: &[&str] = &["Error"];

/// The names of public types and traits, except aliases of another crate's type of the same name
/// (`type Member = spile_ctype::Member<TypeId>`).
#[derive(Default)]
struct Types(Vec<String>);

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (visibility, name) = match item {
            syn::Item::Struct(i) => (&i.vis, &i.ident),
            syn::Item::Enum(i) => (&i.vis, &i.ident),
            syn::Item::Union(i) => (&i.vis, &i.ident),
            syn::Item::Trait(i) => (&i.vis, &i.ident),
            syn::Item::Type(i) if !names(&i.ty, &i.ident) => (&i.vis, &i.ident),
            _ => return visit::visit_item(self, item),
        };
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.0.push(name.to_string());
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Whether a type is a path whose last word is `name`.
fn names(ty: &syn::Type, name: &syn::Ident) -> bool {
    let syn::Type::Path(path) = ty else {
        return false;
    };
    path.path.segments.last().is_some_and(|s| s.ident == *name)
}

#[test]
fn public_types_have_names_of_their_own() {
    let mut crates: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for file in SOURCES.iter() {
        for name in file.types.iter().filter(|n| !SHARED.contains(&&***n)) {
            crates.entry(name).or_default().insert(location(&file.path));
        }
    }
    let of = |path: &String| path.split('/').nth(1).map(str::to_owned);
    let wrong = crates
        .iter()
        .filter(|(_, files)| files.iter().map(of).collect::<BTreeSet<_>>().len() > 1);
    let wrong: Vec<String> = wrong
        .map(|(name, files)| format!("{name}: {files:?}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "public types of one name in several crates:\n{}",
        wrong.join("\n")
    );
}

/// Functions and their lengths, and tuples among their parameters.
#[derive(Default)]
struct Functions {
    long: Vec<(usize, String)>,
    tuples: Vec<(usize, String)>,
}

impl Functions {
    fn function(&mut self, signature: &syn::Signature, block: Option<&syn::Block>) {
        let at = signature.ident.span().start().line;
        let name = signature.ident.to_string();
        let tuple = |input: &syn::FnArg| matches!(input, syn::FnArg::Typed(t) if of_three(&t.ty));
        if signature.inputs.iter().any(tuple) {
            self.tuples.push((at, name.clone()));
        }
        if let Some(block) = block {
            let lines = block.span().end().line - at + 1;
            if lines > LINES && !is_table(block) {
                self.long.push((at, format!("{name}, {lines} lines")));
            }
        }
    }
}

/// Whether a type is a tuple of three or more elements, or a reference to one.
fn of_three(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Tuple(t) => t.elems.len() >= 3,
        syn::Type::Reference(r) => of_three(&r.elem),
        _ => false,
    }
}

/// Whether a function is a table: it consists almost entirely of a `match`, an array or a macro's
/// rows.
fn is_table(block: &syn::Block) -> bool {
    let lines = |span: proc_macro2::Span| span.end().line - span.start().line + 1;
    let widest = block
        .stmts
        .iter()
        .map(|s| (lines(s.span()), s))
        .max_by_key(|(n, _)| *n);
    let Some((most, statement)) = widest else {
        return false;
    };
    let expression = match statement {
        syn::Stmt::Expr(e, _) => Some(e),
        syn::Stmt::Local(l) => l.init.as_ref().map(|i| &*i.expr),
        _ => None,
    };
    let table = expression.is_some_and(|e| match e {
        syn::Expr::Match(m) => m.arms.iter().all(|arm| lines(arm.span()) <= 12),
        syn::Expr::Array(_) | syn::Expr::Macro(_) | syn::Expr::Struct(_) => true,
        syn::Expr::Reference(r) => matches!(&*r.expr, syn::Expr::Array(_)),
        _ => false,
    });
    table && lines(block.span()) - most <= LINES / 2
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

/// The findings in the functions of each crate, with locations.
fn of_functions(which: impl Fn(&Functions) -> &[(usize, String)]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in SOURCES.iter() {
        let locations = which(&file.functions).iter();
        let locations =
            locations.map(|(line, what)| format!("{}:{line}: {what}", location(&file.path)));
        found
            .entry(file.krate.clone())
            .or_default()
            .extend(locations);
    }
    found
}

#[test]
fn functions_are_short() {
    let found = of_functions(|f| &f.long);
    bounded("functions longer than 80 lines", &found, 0);
}

#[test]
fn parameters_have_names() {
    let found = of_functions(|f| &f.tuples);
    bounded(
        "functions with a tuple of three or more as a parameter",
        &found,
        0,
    );
}

/// Counts blocks, implementations and functions that are `unsafe`.
#[derive(Default)]
struct Unsafe(Vec<usize>);

impl<'ast> Visit<'ast> for Unsafe {
    fn visit_expr_unsafe(&mut self, e: &'ast syn::ExprUnsafe) {
        self.0.push(e.span().start().line);
        visit::visit_expr_unsafe(self, e);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.0.extend(item.unsafety.map(|u| u.span.start().line));
        visit::visit_item_impl(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

#[test]
fn unsafe_is_where_contributing_says() {
    let rules = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("text");
    let rule = rules
        .split("\n- ")
        .find(|r| r.starts_with("`unsafe`"))
        .expect("a rule");
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for file in SOURCES.iter() {
        let path = location(&file.path);
        let part = UNSAFE.iter().find(|part| path.contains(**part));
        match part {
            // Also within macros, which are not parsed as code.
            Some(part) if file.text.contains("unsafe {") => drop(used.insert(*part)),
            Some(_) => {}
            None => wrong.extend(
                file.unsafe_lines
                    .iter()
                    .map(|line| format!("{path}:{line}")),
            ),
        }
    }
    assert!(
        wrong.is_empty(),
        "unsafe where CONTRIBUTING.md has none:\n{}",
        wrong.join("\n")
    );
    for part in UNSAFE {
        let name = part
            .strip_prefix("crates/")
            .and_then(|p| p.strip_suffix("/src"))
            .unwrap_or(part);
        assert!(
            rule.contains(&format!("`{name}`")),
            "CONTRIBUTING.md has no `{name}`: {rule}"
        );
        assert!(
            used.contains(part),
            "no unsafe left in {part}: CONTRIBUTING.md has it"
        );
    }
}

//! Functions of the running kernel and its modules: their names, whether they can be probed, and
//! their parameters in BTF.
//!
//! A single function by name is looked up in BTF, and the kernel or its symbols say whether it can
//! be probed. Patterns, names missing from BTF, and names that several functions have, also need
//! ftrace's own list of traceable functions. Each source is read at the first query that needs it
//! and cached.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::btf::{Btf, BtfKind, BtfTypeId, Type};
use crate::features::{self, Availability, Feature};
use crate::perf::{PerfEvent, ProbeCheck};
use crate::symbols::{Symbol, SymbolError, Symbols};
use crate::tracepoints::{Tracefs, debugfs};
use spile_glob as glob;

/// A function that can be probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFunction<'a> {
    /// Its name in the source: `vfs_read`, also for a copy that the compiler made.
    pub name: &'a str,
    /// The symbol: `vfs_read.isra.0`.
    pub symbol: &'a str,
    /// The module that has it; `None` for the kernel itself.
    pub module: Option<&'a str>,
    /// Its address.
    pub address: u64,
    /// Other functions of the same module have this name as well, so BTF's signature is ambiguous.
    pub shared: bool,
    /// Visible to other files of the kernel (not `static`).
    pub global: bool,
    /// ftrace can trace its start. One link attaches any number of such functions.
    pub traced: bool,
    /// The id of its name for [`Functions::name_at`].
    pub name_id: u32,
}

impl KernelFunction<'_> {
    /// Whether BTF's parameters are those of this code. Compilers change them in the copies that
    /// they make.
    #[must_use]
    pub fn as_declared(&self) -> bool {
        !self.shared && self.symbol.len() == self.name.len()
    }
}

/// The result of a look-up.
#[derive(Debug, Clone, Default)]
pub struct FunctionMatches<'a> {
    /// The functions, by address.
    pub functions: Vec<KernelFunction<'a>>,
    /// Number of functions with that name that cannot be probed: on the kernel's blacklist, or (for
    /// a pattern) not traced.
    pub left_out: usize,
}

/// All functions.
#[derive(Debug)]
pub struct Functions<'a> {
    symbols: &'a Symbols,
    /// ftrace's list; `None` where it could not be read.
    traced: Option<FtraceList<'a>>,
    /// Names on the blacklist of kprobes.
    blacklist: HashSet<&'a str>,
    /// Address ranges that must not be probed.
    forbidden: Vec<(u64, u64)>,
    /// Address range of the code that is freed after the boot.
    initial: Option<(u64, u64)>,
}

/// Start and end symbols of sections that cannot be probed: `arch_populate_kprobe_blacklist`
/// and `kprobe_add_area_blacklist` in the kernel.
const SECTIONS: [[&str; 2]; 4] = [
    ["__kprobes_text_start", "__kprobes_text_end"],
    ["__noinstr_text_start", "__noinstr_text_end"],
    ["__entry_text_start", "__entry_text_end"],
    ["__cpuidle_text_start", "__cpuidle_text_end"],
];
/// `NOKPROBE_SYMBOL(f)` makes a variable of this name.
const NO_KPROBE: &str = "_kbl_addr_";
/// Prefixes of symbols in front of or next to functions that are not functions themselves.
const NO_FUNCTION: [&str; 4] = ["__pfx_", "__cfi_", "__SCT__", "__SCK__"];

/// The files with ftrace's list: with addresses (Linux 6.5), and with names alone.
const TRACED: [&str; 2] = [
    "available_filter_functions_addrs",
    "available_filter_functions",
];
/// The placeholder in these files for a function that is gone (`FTRACE_INVALID_FUNCTION`).
const GONE: &str = "__ftrace_invalid_address__";
/// Maximum offset of ftrace's location from the function's start, where it follows an `endbr64`.
const ENTRY: u64 = 16;

/// ftrace's list of traceable functions.
#[derive(Debug)]
enum FtraceList<'a> {
    /// Names with modules. A name that several functions have is ambiguous.
    Names(HashSet<(&'a str, &'a str)>),
    /// Addresses close after the starts of functions, ascending.
    Addresses(Vec<u64>),
}

impl<'a> FtraceList<'a> {
    /// Parses the text of one of the files.
    fn parse(text: &'a str) -> FtraceList<'a> {
        let address = |line: &str| {
            let (address, name) = line.split_once(' ')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            (!name.starts_with(GONE)).then_some(address)
        };
        let lines = text.lines();
        if lines.clone().next().and_then(address).is_none() {
            return FtraceList::Names(lines.map(traced_line).collect());
        }
        let mut addresses: Vec<u64> = lines.filter_map(address).collect();
        addresses.sort_unstable();
        FtraceList::Addresses(addresses)
    }

    /// Whether ftrace can trace the function that begins there.
    fn has(&self, s: &Symbol<'_>, symbols: &Symbols) -> bool {
        match self {
            FtraceList::Names(names) => {
                let module = s.module.unwrap_or("");
                // The list has one name for each location.
                names.contains(&(s.name, module))
                    || (symbols.at(s.address)).any(|o| names.contains(&(o.name, module)))
            }
            FtraceList::Addresses(addresses) => {
                let first = addresses.partition_point(|a| *a < s.address);
                addresses.get(first).is_some_and(|a| a - s.address < ENTRY)
            }
        }
    }
}

impl Functions<'static> {
    /// The functions of the running kernel, read at the first call and cached.
    ///
    /// # Errors
    /// When the kernel hides its symbols.
    pub fn kernel() -> Result<&'static Functions<'static>, &'static SymbolError> {
        static KERNEL: OnceLock<Result<Functions<'static>, SymbolError>> = OnceLock::new();
        KERNEL
            .get_or_init(|| {
                // The kernel formats both texts slowly, so they are read in parallel.
                let listing = std::thread::Builder::new().spawn(traced_text);
                let symbols = Symbols::kernel().map_err(Clone::clone)?;
                // A dozen names are looked up below.
                symbols.index_names();
                let text = match listing {
                    Ok(listing) => listing.join().ok().flatten(),
                    Err(_) => traced_text(),
                };
                let text: Option<&'static str> = text.map(|t| &*t.leak());
                let mut functions = Functions::new(symbols, text);
                functions.blacklist.extend(blacklist());
                Ok(functions)
            })
            .as_ref()
    }
}

/// Reads the functions ahead: for a thread beside one that will look up many.
pub fn preread() {
    let _ = Functions::kernel();
}

/// The kernel's own kprobe blacklist, read once; empty where it cannot be read or the kernel has no
/// kprobes.
fn blacklist() -> impl Iterator<Item = &'static str> {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| match crate::foreign_kernel::is_active() {
        true => String::new(),
        false => debugfs("kprobes/blacklist").unwrap_or_default(),
    });
    text.lines().filter_map(blacklist_line)
}

/// `START-END\tNAME`, as `kprobe_blacklist_seq_show` prints it.
fn blacklist_line(line: &str) -> Option<&str> {
    let name = line.split_once('\t')?.1;
    Some(name.split([' ', '+']).next().unwrap_or(name))
}

/// The text of ftrace's list, from tracefs wherever it is mounted.
fn traced_text() -> Option<String> {
    if crate::foreign_kernel::is_active() {
        return None;
    }
    let tracefs = Tracefs::open().ok()?;
    TRACED.iter().find_map(|file| tracefs.read_large(file).ok())
}

/// Whether the running kernel has exactly one function of that name, including modules, and it may
/// be probed: kprobe.multi also attaches where breakpoints are forbidden, and processors hang.
/// Where the kernel itself cannot answer, its symbols are searched, which takes some 50 ms, but not
/// ftrace's list. Where symbols are hidden, only the blacklist is checked.
#[must_use]
pub fn can_be_probed(name: &str) -> bool {
    let asked = match crate::foreign_kernel::is_active() {
        true => ProbeCheck::Unknown,
        false => PerfEvent::kprobe_verdict(name),
    };
    if asked != ProbeCheck::Unknown {
        return asked == ProbeCheck::Sound;
    }
    if unprobed() && Btf::vmlinux().is_ok_and(|btf| signature(btf, name).is_some()) {
        return Symbols::kernel().map_or(true, |symbols| !runs_at_boot(symbols, name));
    }
    let listed = || blacklist().any(|n| n == name);
    Symbols::kernel().map_or(true, |symbols| symbol_can_be_probed(symbols, name)) && !listed()
}

/// Whether the running kernel has no probes at functions, so that the answer does not matter.
fn unprobed() -> bool {
    !crate::foreign_kernel::is_active()
        && features::has(Feature::Kprobes).is_unavailable()
        && features::has(Feature::Fentry) != Availability::Yes
}

/// The address range between two symbols of the kernel.
fn range(symbols: &Symbols, [start, end]: &[&str; 2]) -> Option<(u64, u64)> {
    let (start, end) = (symbols.address_of(start)?, symbols.address_of(end)?);
    (start < end).then_some((start, end))
}

/// The address ranges that must not be probed.
fn forbidden(symbols: &Symbols) -> impl Iterator<Item = (u64, u64)> + '_ {
    SECTIONS.iter().filter_map(|edges| range(symbols, edges))
}

/// The address range of code that the kernel frees when it has started.
fn initial(symbols: &Symbols) -> Option<(u64, u64)> {
    range(symbols, &["_sinittext", "_einittext"])
}

/// Whether all functions of that name are gone since the kernel has started.
fn runs_at_boot(symbols: &Symbols, name: &str) -> bool {
    let mut functions = symbols.find(name).filter(is_code).peekable();
    functions.peek().is_some()
        && initial(symbols)
            .is_some_and(|(start, end)| functions.all(|s| (start..end).contains(&s.address)))
}

fn symbol_can_be_probed(symbols: &Symbols, name: &str) -> bool {
    let mut functions = symbols.find(name).filter(is_code);
    let (Some(one), None) = (functions.next(), functions.next()) else {
        return false;
    };
    let within = |(start, end): (u64, u64)| (start..end).contains(&one.address);
    let marked = format!("{NO_KPROBE}{name}");
    one.module.is_none()
        && !forbidden(symbols).any(within)
        && symbols.find(&marked).next().is_none()
}

impl<'a> Functions<'a> {
    /// From a list of symbols, and ftrace's list if there is one.
    #[must_use]
    pub fn new(symbols: &'a Symbols, traced: Option<&'a str>) -> Functions<'a> {
        let traced = traced.map(FtraceList::parse);
        let marks = symbols.starting_with(NO_KPROBE);
        Functions {
            symbols,
            traced,
            blacklist: marks.map(|s| &s.name[NO_KPROBE.len()..]).collect(),
            forbidden: forbidden(symbols).collect(),
            initial: initial(symbols),
        }
    }

    /// The functions whose names match: of modules whose names match, or of the kernel
    /// itself. Copies that the compiler made (`f.isra.0`) match by the name in the source.
    #[must_use]
    pub fn matching(&self, module: Option<&str>, pattern: &str) -> FunctionMatches<'a> {
        let one = !glob::is_pattern(pattern);
        let mut matches = FunctionMatches::default();
        let mut take = |s: Symbol<'a>| {
            if !in_module(module, s.module) || !is_code(&s) {
                return;
            }
            let name = source_name(s.name);
            let named = if one {
                name == pattern || s.name == pattern
            } else {
                glob::matches(pattern, name)
            };
            if !named {
                return;
            }
            match self.probeability(&s, one) {
                Some(traced) => matches.functions.push(KernelFunction {
                    name,
                    symbol: s.name,
                    module: s.module,
                    address: s.address,
                    shared: false,
                    global: s.kind == 'T',
                    traced,
                    name_id: self.symbols.offset_of(&s),
                }),
                None => matches.left_out += 1,
            }
        };
        let prefix = glob::literal_prefix(pattern);
        if one {
            self.symbols.find_with_copies(pattern).for_each(&mut take);
        } else if prefix.is_empty() {
            self.symbols.all().for_each(&mut take);
        } else {
            self.symbols.starting_with(prefix).for_each(&mut take);
        }
        matches.sort_and_mark();
        matches
    }

    /// Whether a function can be probed, and whether ftrace can trace it (`Some(true)`). For a
    /// pattern only traceable functions are taken: others need a breakpoint each.
    fn probeability(&self, s: &Symbol<'_>, one: bool) -> Option<bool> {
        let within = |range: &(u64, u64)| (range.0..range.1).contains(&s.address);
        let kernel = s.module.is_none();
        let gone = self.initial.as_ref().is_some_and(within);
        if kernel && (gone || self.forbidden.iter().any(within)) || self.blacklist.contains(s.name)
        {
            return None;
        }
        match &self.traced {
            Some(traced) => {
                let has = traced.has(s, self.symbols);
                (has || one).then_some(has)
            }
            None => Some(true),
        }
    }

    /// The symbol of a function found before ([`KernelFunction::at`]).
    #[must_use]
    pub fn name_at(&self, id: u32) -> Option<&'a str> {
        self.symbols.name_at(id)
    }

    /// Whether a location in code can be probed; `Some(true)` if it is the start of a function that
    /// ftrace can trace.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<bool> {
        let (symbol, offset) = self.symbols.resolve(address)?;
        let candidate = Symbol { address, ..symbol };
        let traced = self.probeability(&candidate, true)?;
        Some(traced && offset == 0)
    }
}

impl FunctionMatches<'_> {
    /// Sorts, and marks names that several functions have.
    fn sort_and_mark(&mut self) {
        let list = &mut self.functions;
        list.sort_by_key(|f| f.address);
        list.dedup_by_key(|f| (f.address, f.name));
        list.shrink_to_fit();
        let mut count: HashMap<(Option<&str>, &str), u32> = HashMap::new();
        for f in list.iter() {
            *count.entry((f.module, f.name)).or_default() += 1;
        }
        for f in list.iter_mut() {
            f.shared = count.get(&(f.module, f.name)).is_some_and(|n| *n > 1);
        }
    }
}

/// `NAME [MODULE]`
fn traced_line(line: &str) -> (&str, &str) {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let module = rest
        .trim()
        .strip_prefix('[')
        .and_then(|m| m.strip_suffix(']'));
    (name, module.unwrap_or(""))
}

fn in_module(pattern: Option<&str>, module: Option<&str>) -> bool {
    match (pattern, module) {
        (None, None) => true,
        (Some(p), Some(m)) => glob::matches(p, m),
        _ => false,
    }
}

/// Whether a symbol is the start of a function in the source.
fn is_code(s: &Symbol<'_>) -> bool {
    let generated = |m: &str| m == "bpf" || m.starts_with("__builtin__");
    s.is_function()
        && !s.module.is_some_and(generated)
        && !NO_FUNCTION.iter().any(|p| s.name.starts_with(p))
        && !s.name.contains(".cold")
}

/// The name without the compiler's suffixes: `f` for `f.isra.0`, `f.constprop.0.isra.0`.
fn source_name(symbol: &str) -> &str {
    symbol
        .split('.')
        .next()
        .filter(|n| !n.is_empty())
        .unwrap_or(symbol)
}

/// The signature of a function in BTF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Its type id in that BTF, which programs of type tracing name.
    pub id: BtfTypeId,
    /// Names and types of the parameters; a nameless one has an empty name.
    pub params: Vec<(String, BtfTypeId)>,
    /// Whether it takes more arguments than it names.
    pub variadic: bool,
    /// Its return type; 0 for none.
    pub ret: BtfTypeId,
}

/// Prefix of the function to which programs at an LSM hook attach.
const LSM: &str = "bpf_lsm_";

/// The signature of an LSM hook that programs can attach to.
#[must_use]
pub fn lsm_hook(btf: &Btf, name: &str) -> Option<Signature> {
    signature(btf, &format!("{LSM}{name}"))
}

/// The LSM hooks that match a glob, sorted.
#[must_use]
pub fn lsm_hooks(btf: &Btf, glob: &str) -> Vec<String> {
    if !glob::is_pattern(glob) {
        let hooks = lsm_hook(btf, glob).map(|_| glob.to_owned());
        return hooks.into_iter().collect();
    }
    let names = btf
        .all(BtfKind::Func)
        .filter_map(|(_, n)| n.strip_prefix(LSM));
    let mut hooks: Vec<String> = names
        .filter(|n| glob::matches(glob, n))
        .map(str::to_owned)
        .collect();
    hooks.sort_unstable();
    hooks.dedup();
    hooks
}

/// The signature of a function, if BTF has exactly one function of that name.
#[must_use]
pub fn signature(btf: &Btf, name: &str) -> Option<Signature> {
    let mut functions = btf.find_all(BtfKind::Func, name);
    let id = functions.next()?;
    if functions.next().is_some() {
        return None;
    }
    let Type::Func { proto, .. } = btf.ty(id) else {
        return None;
    };
    let Type::FuncProto(proto) = btf.ty(proto) else {
        return None;
    };
    let mut params: Vec<(String, BtfTypeId)> =
        proto.params().map(|p| (p.name.to_owned(), p.ty)).collect();
    let variadic = params.last().is_some_and(|p| p.1 == 0 && p.0.is_empty());
    if variadic {
        params.pop();
    }
    Some(Signature {
        id,
        params,
        variadic,
        ret: proto.ret,
    })
}

/// Functions that never return, as `tools/objtool/noreturns.h` of the kernel lists them: fexit
/// would wait forever.
const NO_RETURN: [&str; 9] = [
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "kthread_complete_and_exit",
    "kthread_exit",
    "machine_real_restart",
    "make_task_dead",
    "panic",
    "rewind_stack_and_make_dead",
];

/// Functions that the verifier refuses as targets of tracing programs: `btf_id_deny` in the
/// kernel's `kernel/bpf/verifier.c`.
const DENIED: [&str; 8] = [
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "__migrate_disable",
    "migrate_disable",
    "migrate_enable",
    "preempt_count_add",
    "preempt_count_sub",
    "rcu_read_unlock_strict",
];

/// The signature of a function that fentry may attach to, and whether fexit may. Older kernels
/// refuse structures as arguments, and more arguments than registers hold.
#[must_use]
pub fn trampoline(btf: &Btf, name: &str) -> Option<(Signature, bool)> {
    const REGISTERS: usize = 6;
    let signature = signature(btf, name)?;
    let plain = |ty: BtfTypeId| {
        btf.composite(ty).is_none() && btf.size_of(ty).is_none_or(|size| (1..=8).contains(&size))
    };
    let fits =
        signature.params.iter().all(|(_, ty)| plain(*ty)) && signature.params.len() <= REGISTERS;
    let result_fits = signature.ret == 0 || plain(signature.ret);
    let returns = result_fits && !NO_RETURN.contains(&name);
    (fits && !signature.variadic && !DENIED.contains(&name)).then_some((signature, returns))
}

/// The type ids of all functions with a unique name in a BTF. For many look-ups: [`signature`]
/// searches the whole BTF for each.
#[must_use]
pub fn ids(btf: &Btf) -> HashMap<&str, BtfTypeId> {
    let mut unique: HashMap<&str, Option<BtfTypeId>> = HashMap::new();
    for (id, name) in btf.all(BtfKind::Func) {
        let slot = unique.entry(name).or_insert(Some(id));
        if *slot != Some(id) {
            *slot = None;
        }
    }
    unique
        .into_iter()
        .filter_map(|(name, id)| Some((name, id?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::tests::testblob::Builder;

    const SYMBOLS: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 T vfs_read
ffffffff81000110 t __pfx_vfs_write
ffffffff81000120 T vfs_write
ffffffff81000200 t helper
ffffffff81000300 t helper
ffffffff81000400 t part.isra.0
ffffffff81000480 t part.cold
ffffffff81000500 T kprobe_handler
ffffffff81000600 T __noinstr_text_start
ffffffff81000610 T vfs_entry
ffffffff81000700 T __noinstr_text_end
ffffffff81000800 d _kbl_addr_kprobe_handler
ffffffff81000900 t vfs_untraced
ffffffff81000a00 T __ia32_sys_read
ffffffff81000a00 T __x64_sys_read
ffffffffc0001000 t helper\t[xfs]
ffffffffc0001100 t vfs_module\t[xfs]
ffffffffc0002000 t bpf_prog_1\t[bpf]
";
    const TRACED: &str = "vfs_read\nvfs_write\nhelper\npart.isra.0\n__ia32_sys_read\nhelper [xfs]\nvfs_module [xfs]\n";

    fn names<'a>(found: &FunctionMatches<'a>) -> Vec<&'a str> {
        found.functions.iter().map(|f| f.name).collect()
    }

    #[test]
    fn patterns_take_what_can_be_traced() {
        let symbols = Symbols::parse(SYMBOLS).expect("sound");
        let all = Functions::new(&symbols, Some(TRACED));
        let vfs = all.matching(None, "vfs_*");
        assert_eq!(names(&vfs), ["vfs_read", "vfs_write"]);
        assert_eq!(vfs.left_out, 2);
        let two = all.matching(None, "help*");
        assert!(two.functions.len() == 2 && two.functions.iter().all(|f| f.shared));
        assert_eq!(
            names(&all.matching(Some("x*"), "*")),
            ["helper", "vfs_module"]
        );
        assert!(all.matching(Some("bpf"), "*").functions.is_empty());
        assert!(all.matching(None, "kprobe_*").functions.is_empty());
    }

    #[test]
    fn addresses_tell_functions_of_one_name_apart() {
        let symbols = Symbols::parse(SYMBOLS).expect("sound");
        let text = "ffffffff81000104 vfs_read\nffffffff81000304 helper\n\
                    ffffffff81000a00 __ia32_sys_read\nffffffff81000904 __ftrace_invalid_address___4\n\
                    ffffffffc0001104 vfs_module [xfs]\n";
        let all = Functions::new(&symbols, Some(text));
        let vfs = all.matching(None, "vfs_*");
        assert_eq!((names(&vfs), vfs.left_out), (vec!["vfs_read"], 3));
        let helpers = all.matching(None, "helpe?");
        assert_eq!(helpers.functions.len(), 1);
        assert_eq!(helpers.functions[0].address, 0xffff_ffff_8100_0300);
        let alias = all.matching(None, "__x64_sys_read");
        assert!(alias.functions[0].traced);
        assert_eq!(names(&all.matching(Some("xfs"), "*")), ["vfs_module"]);
    }

    #[test]
    fn one_function_is_found_by_name() {
        let symbols = Symbols::parse(SYMBOLS).expect("sound");
        let all = Functions::new(&symbols, Some(TRACED));
        let part = all.matching(None, "part");
        let [f] = part.functions[..] else {
            panic!("{part:?}")
        };
        assert!(f.symbol == "part.isra.0" && f.traced && !f.as_declared() && !f.global);
        let plain = all.matching(None, "vfs_untraced");
        assert!(!plain.functions[0].traced && plain.functions[0].as_declared());
        let alias = all.matching(None, "__x64_sys_read");
        assert!(alias.functions[0].traced);
        let listed = all.matching(None, "kprobe_handler");
        assert_eq!((listed.functions.len(), listed.left_out), (0, 1));
        assert_eq!(all.matching(None, "nosuch").left_out, 0);
    }

    #[test]
    fn code_that_is_freed_at_boot_is_left_out() {
        let boot = "ffffffff82000000 T _sinittext\nffffffff82000100 t init_setup\n\
                    ffffffff82000200 t both\nffffffff82001000 T _einittext\n";
        let text = format!("{SYMBOLS}ffffffff81000b00 t both\n{boot}");
        let symbols = Symbols::parse(text.as_str()).expect("sound");
        assert!(runs_at_boot(&symbols, "init_setup"));
        assert!(!runs_at_boot(&symbols, "both") && !runs_at_boot(&symbols, "nosuch"));
        for traced in [Some(TRACED), None] {
            let all = Functions::new(&symbols, traced);
            let gone = all.matching(None, "init_setup");
            assert_eq!((gone.functions.len(), gone.left_out), (0, 1));
            assert_eq!(all.matching(None, "both").functions.len(), 1);
            assert_eq!(all.at(0xffff_ffff_8200_0100), None);
        }
    }

    #[test]
    fn only_names_of_code_may_be_probed() {
        let symbols = Symbols::parse(SYMBOLS).expect("sound");
        let sound = |name| symbol_can_be_probed(&symbols, name);
        assert!(sound("vfs_read") && sound("vfs_untraced"));
        // On the blacklist, in a forbidden section, ambiguous, of a module, a copy, missing.
        for name in [
            "kprobe_handler",
            "vfs_entry",
            "helper",
            "vfs_module",
            "part",
            "nosuch",
        ] {
            assert!(!sound(name), "{name}");
        }
        let line = "0xffffffff81000500-0xffffffff81000510\tkprobe_handler";
        assert_eq!(blacklist_line(line), Some("kprobe_handler"));
        assert_eq!(blacklist_line(""), None);
    }

    #[test]
    fn functions_are_found_without_ftrace() {
        let symbols = Symbols::parse(SYMBOLS).expect("sound");
        let all = Functions::new(&symbols, None);
        let vfs = all.matching(None, "vfs_*");
        assert_eq!(names(&vfs), ["vfs_read", "vfs_write", "vfs_untraced"]);
        assert!(all.traced.is_none());
    }

    #[test]
    fn signatures_of_ambiguous_functions_are_unknown() {
        let mut b = Builder::new();
        let int = b.int("int", 4, true);
        let proto = b.proto(int, &[("fd", int), ("", 0)]);
        let id = b.link(BtfKind::Func, "f", proto);
        for name in ["twice", "other", "twice"] {
            b.link(BtfKind::Func, name, proto);
        }
        let plain = b.proto(0, &[("code", int)]);
        b.link(BtfKind::Func, "do_exit", plain);
        let btf = Btf::parse(b.bytes()).expect("sound");
        let want = Signature {
            id,
            params: vec![("fd".into(), int)],
            variadic: true,
            ret: int,
        };
        assert_eq!(signature(&btf, "f"), Some(want));
        assert!(
            trampoline(&btf, "f").is_none() && trampoline(&btf, "do_exit").is_some_and(|f| !f.1)
        );
        assert_eq!(signature(&btf, "twice"), None);
        let ids = ids(&btf);
        assert_eq!((ids.get("f"), ids.get("twice")), (Some(&id), None));
        assert_eq!(signature(&btf, "nosuch"), None);
    }

    #[test]
    fn functions_of_the_running_kernel_are_found() {
        let all = match Functions::kernel() {
            Ok(all) => all,
            Err(why) => spile_testing::skip!("{why}"),
        };
        let read = all.matching(None, "vfs_read");
        assert!(read.functions.iter().any(|f| f.name == "vfs_read"));
        let many = all.matching(None, "vfs_*");
        assert!(many.functions.len() > 20, "{}", many.functions.len());
    }
}

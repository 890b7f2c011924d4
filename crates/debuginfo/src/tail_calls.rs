//! All instructions by which functions return, through tail calls: a function that leaves by a jump
//! to another one returns at the return instructions of that one, which may jump on.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use crate::exits::{self, FunctionExits, TailJump};
use crate::module::DebugFile;
use crate::plt;

/// Maximum number of functions that the exits of one function are followed to.
const MAX_FUNCTIONS: usize = 64;

/// The return instructions of a function, as linked addresses in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReturnLocations {
    /// Its own.
    pub in_function: Vec<u64>,
    /// Those of functions that it jumps to, which return instead.
    pub shared: Vec<u64>,
}

impl ReturnLocations {
    /// Whether it never returns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.in_function.is_empty() && self.shared.is_empty()
    }
}

/// The exits of a file's functions, each decoded once.
pub struct ExitFinder<'m> {
    module: &'m DebugFile,
    known: RefCell<HashMap<u64, Rc<Result<FunctionExits, String>>>>,
    /// The names of stubs of the linkage table by address.
    stubs: OnceCell<HashMap<u64, &'m str>>,
}

impl<'m> ExitFinder<'m> {
    /// For a file.
    #[must_use]
    pub fn new(module: &'m DebugFile) -> ExitFinder<'m> {
        ExitFinder {
            module,
            known: RefCell::default(),
            stubs: OnceCell::new(),
        }
    }

    /// The instructions by which the function at a linked address returns.
    ///
    /// # Errors
    /// Why they are not all known.
    pub fn return_locations(&self, entry: u64) -> Result<ReturnLocations, String> {
        let first = self.exits(entry);
        let first = first.as_ref().as_ref().map_err(Clone::clone)?;
        let mut seen = BTreeSet::from([entry]);
        let mut shared = BTreeSet::new();
        let mut todo: Vec<TailJump> = first.jumps.clone();
        while let Some(jump) = todo.pop() {
            let unknown = |why: &str| self.message(jump, why);
            let to = jump.to.ok_or_else(|| unknown("which returns instead"))?;
            if to == entry {
                return Err(unknown(
                    "where it began, so that one return ends several of its calls",
                ));
            }
            if !seen.insert(to) {
                continue;
            }
            if seen.len() > MAX_FUNCTIONS {
                return Err("it jumps on through too many functions".into());
            }
            if let Some(name) = self.stub(to) {
                let text = format!("`{name}` through the linkage table, which returns instead");
                return Err(format!(
                    "at {:#x} it ends with a jump to {text}",
                    jump.address
                ));
            }
            match &*self.exits(to) {
                Ok(exits) => {
                    shared.extend(&exits.returns);
                    todo.extend(&exits.jumps);
                }
                Err(why) => {
                    let why = format!("whose return instructions are not known: {why}");
                    return Err(unknown(&why));
                }
            }
        }
        let own_returns: BTreeSet<u64> = first.returns.iter().copied().collect();
        Ok(ReturnLocations {
            shared: shared.difference(&own_returns).copied().collect(),
            in_function: own_returns.into_iter().collect(),
        })
    }

    /// The exits of one function itself.
    fn exits(&self, entry: u64) -> Rc<Result<FunctionExits, String>> {
        if let Some(known) = self.known.borrow().get(&entry) {
            return known.clone();
        }
        let dwarf = self.module.dwarf();
        let function = dwarf.and_then(|d| Some((d, d.function_starting_at(entry)?)));
        let code = function.map_or_else(Vec::new, |(d, f)| d.code_of(f.die));
        let exits = Rc::new(exits::find(self.module, entry, &code));
        self.known.borrow_mut().insert(entry, exits.clone());
        exits
    }

    fn stub(&self, address: u64) -> Option<&'m str> {
        let stubs = self.stubs.get_or_init(|| {
            let entries = plt::entries(self.module.image()).into_iter();
            entries.map(|stub| (stub.address, stub.name)).collect()
        });
        stubs.get(&address).copied()
    }

    /// The message for a jump to a function whose return instructions are not known.
    fn message(&self, jump: TailJump, why: &str) -> String {
        let symbols = self.module.symbols();
        let to = match jump.to.map(|to| (symbols.function_at(to), to)) {
            Some((Some((symbol, 0)), _)) => format!("`{}`", symbol.name),
            Some((_, to)) => format!("{to:#x}"),
            None => "an address that it computes".into(),
        };
        format!("at {:#x} it ends with a jump to {to}, {why}", jump.address)
    }
}

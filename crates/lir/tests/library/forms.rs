//! Runs functions of the library under the interpreter, as they are written and with their loops as
//! callbacks. While mutants are tried, a changed function takes the place of the written one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use spile_lir::counted::count;
use spile_lir::func::{LirFunc, MemoryOperand};
use spile_lir::helpers::Helper;
use spile_lir::interp::{Host, Machine, Memory, RegionKind, Trap};
use spile_lir::repeat::outline;
use spile_lir::verify::{HostLimits, verify};
use spile_lir::{Module, mutate};

/// A test that other tests run, with its name.
pub(crate) type Test = (&'static str, fn());

/// Declares property tests with their numbers of cases, and lists them for the tests of mutants, in
/// `TESTS`. Tests behind `also` are listed too.
macro_rules! properties {
    (
        $(also $other:ident;)*
        $($(#[$meta:meta])* $cases:literal cases: fn $name:ident $args:tt $body:tt)*
    ) => {
        $(proptest::proptest! {
            #![proptest_config($crate::forms::config($cases))]
            $(#[$meta])*
            #[test]
            fn $name $args $body
        })*

        pub(crate) const TESTS: &[$crate::forms::Test] = &[
            $((concat!(module_path!(), "::", stringify!($other)), $other),)*
            $((concat!(module_path!(), "::", stringify!($name)), $name),)*
        ];
    };
}
pub(crate) use properties;

/// What tests of this thread do besides running functions as they are.
#[derive(Default)]
enum Mode {
    #[default]
    Run,
    /// Collects the functions that run, by name and number of mutations.
    Record(HashMap<Shape, Recorded>),
    /// Runs changed functions.
    Mutate(Mutant),
}

/// The name of a function, without the widths in it, and the number of its mutations. The functions of
/// a shape differ in numbers only.
pub(crate) type Shape = (String, usize);

/// A function that ran, in its module.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) module: Arc<Module>,
    pub(crate) index: usize,
}

/// A mutation of all functions of a shape.
#[derive(Debug, Clone)]
pub(crate) struct Mutant {
    pub(crate) shape: Shape,
    /// Index in [`mutate::mutations`].
    pub(crate) mutation: usize,
}

thread_local! {
    static MODE: RefCell<Mode> = RefCell::default();
    /// Modules by their keys, as they are.
    static FORMS: RefCell<HashMap<String, Rc<Forms>>> = RefCell::default();
    /// The same with the mutant.
    static CHANGED: RefCell<HashMap<String, Rc<Forms>>> = RefCell::default();
}

/// Collects what a test runs.
pub(crate) fn recorded(test: fn()) -> HashMap<Shape, Recorded> {
    MODE.set(Mode::Record(HashMap::new()));
    test();
    match MODE.take() {
        Mode::Record(found) => found,
        _ => HashMap::new(),
    }
}

/// Runs a test with a mutant.
pub(crate) fn with_mutant<T>(mutant: &Mutant, test: impl FnOnce() -> T) -> T {
    MODE.set(Mode::Mutate(mutant.clone()));
    let result = test();
    CHANGED.take();
    MODE.take();
    result
}

/// Whether a mutant runs on this thread, whose failures are expected.
pub(crate) fn is_mutating() -> bool {
    MODE.with_borrow(|mode| matches!(mode, Mode::Mutate(_)))
}

/// The configuration of a property. Runs that others compare have the same inputs always; the others have
/// `SPILE_CASES` times as many cases, as in `make test-all`.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let run = MODE.with_borrow(|mode| matches!(mode, Mode::Run));
    let times = std::env::var("SPILE_CASES").ok();
    let times = times.and_then(|t| t.parse().ok()).filter(|_| run);
    ProptestConfig {
        cases: cases * times.unwrap_or(1),
        failure_persistence: None,
        max_shrink_iters: if run { u32::MAX } else { 0 },
        rng_seed: if run {
            RngSeed::Random
        } else {
            RngSeed::Fixed(1)
        },
        ..ProptestConfig::default()
    }
}

/// The shape of a function.
fn shape(func: &LirFunc) -> Shape {
    let number = |part: &&str| !part.bytes().all(|b| b.is_ascii_digit());
    let name: Vec<&str> = func.name.split('_').filter(number).collect();
    (name.join("_"), mutate::mutations(func).len())
}

/// An argument: a number, or the address of these bytes.
#[derive(Clone)]
pub(crate) enum Arg {
    Number(u64),
    Memory(Vec<u8>),
}

pub(crate) fn number(n: usize) -> Arg {
    Arg::Number(n as u64)
}

/// A module as it is written, and with its loops as callbacks; a changed one as it is written only.
pub(crate) struct Forms {
    modules: Vec<Arc<Module>>,
    /// The shapes of the written functions.
    shapes: Vec<Shape>,
}

/// The forms of a module. A thread makes the module of a key once.
pub(crate) fn forms(key: &str, make: impl FnOnce() -> Module) -> Rc<Forms> {
    let known = CHANGED.with_borrow(|changed| changed.get(key).cloned());
    if let Some(forms) = known {
        return forms;
    }
    let known = FORMS.with_borrow(|forms| forms.get(key).cloned());
    let forms = known.unwrap_or_else(|| {
        let forms = Rc::new(Forms::new(make()));
        FORMS.with_borrow_mut(|all| all.insert(key.into(), forms.clone()));
        forms
    });
    MODE.with_borrow(|mode| match mode {
        Mode::Mutate(mutant) => {
            let forms = forms.changed(mutant).map_or(forms, Rc::new);
            CHANGED.with_borrow_mut(|all| all.insert(key.into(), forms.clone()));
            forms
        }
        _ => forms,
    })
}

impl Forms {
    fn new(module: Module) -> Forms {
        let mut outlined = module.clone();
        verify(&module, &HostLimits::NONE).unwrap_or_else(|e| panic!("{e}\n{module}"));
        outline(&mut outlined, &HostLimits::NONE).unwrap_or_else(|e| panic!("{e}"));
        verify(&outlined, &HostLimits::NONE).unwrap_or_else(|e| panic!("{e}\n{outlined}"));
        outlined.funcs.iter_mut().for_each(count);
        for func in &module.funcs {
            let parts = func.contract.split_once('\n');
            let cost = parts.is_some_and(|(_, rest)| rest.contains("Cost: "));
            assert!(cost, "@{}: what it does, arguments, cost", func.name);
        }
        let back = spile_lir::reader::read(&module.to_string()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(back.to_string(), module.to_string());
        Forms {
            shapes: module.funcs.iter().map(shape).collect(),
            modules: vec![Arc::new(module), Arc::new(outlined)],
        }
    }

    /// The module with the mutant, if it has the function.
    fn changed(&self, mutant: &Mutant) -> Option<Forms> {
        let mut module = None;
        for (i, _) in (self.shapes.iter().enumerate()).filter(|(_, shape)| **shape == mutant.shape)
        {
            let module = module.get_or_insert_with(|| (*self.modules[0]).clone());
            let func = &module.funcs[i];
            module.funcs[i] = mutate::mutations(func)[mutant.mutation].apply(func);
        }
        Some(Forms {
            modules: vec![Arc::new(module?)],
            shapes: self.shapes.clone(),
        })
    }

    /// A machine for each form.
    pub(crate) fn machines(&self, steps: u64) -> impl Iterator<Item = TestMachine<'_>> {
        self.modules.iter().map(move |module| TestMachine {
            machine: Machine::new(module, steps),
            forms: self,
        })
    }

    /// What a run of each form gives, which must be the same.
    pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
        &self,
        steps: u64,
        run: impl FnMut(TestMachine<'_>) -> T,
    ) -> T {
        let mut results = self.machines(steps).map(run);
        let first = results.next().expect("a form");
        for other in results {
            assert_eq!(first, other, "loops and callbacks");
        }
        first
    }

    /// Runs a function in all forms, which must agree; gives the result and the memory afterwards.
    pub(crate) fn run(&self, name: &str, args: &[Arg]) -> (u64, Vec<Vec<u8>>) {
        self.same(3_000_000, |mut machine| {
            let mut numbers = Vec::new();
            for arg in args {
                numbers.push(match arg {
                    Arg::Number(n) => *n,
                    Arg::Memory(bytes) => machine.memory.add(bytes.clone(), RegionKind::Memory),
                });
            }
            let result = machine.run(name, &numbers, &mut Reads);
            let result = result.unwrap_or_else(|e| panic!("{name}: {e}"));
            let memory = numbers.iter().filter_map(|n| machine.memory.region(*n));
            (result, memory.map(<[u8]>::to_vec).collect())
        })
    }
}

/// A machine whose functions are recorded.
pub(crate) struct TestMachine<'f> {
    machine: Machine<'f>,
    forms: &'f Forms,
}

impl<'f> Deref for TestMachine<'f> {
    type Target = Machine<'f>;

    fn deref(&self) -> &Machine<'f> {
        &self.machine
    }
}

impl<'f> DerefMut for TestMachine<'f> {
    fn deref_mut(&mut self) -> &mut Machine<'f> {
        &mut self.machine
    }
}

impl Drop for TestMachine<'_> {
    fn drop(&mut self) {
        MODE.with_borrow_mut(|mode| {
            let Mode::Record(found) = mode else { return };
            for index in self.machine.called() {
                // Functions behind the written ones are loops of them.
                if let Some(shape) = self.forms.shapes.get(index)
                    && !found.contains_key(shape)
                {
                    let module = Arc::clone(&self.forms.modules[0]);
                    found.insert(shape.clone(), Recorded { module, index });
                }
            }
        });
    }
}

thread_local! {
    /// The maps and keys of removed elements.
    pub(crate) static REMOVED: RefCell<Vec<[u64; 2]>> = const { RefCell::new(Vec::new()) };
}

/// A host whose helpers read the memory of the run.
pub(crate) struct Reads;

impl Host for Reads {
    fn helper(&mut self, memory: &mut Memory, helper: Helper, args: &[u64]) -> Result<u64, Trap> {
        if let (Helper::MapDelete, [map, key]) = (helper, args) {
            REMOVED.with_borrow_mut(|all| all.push([*map, *key]));
            return Ok(0);
        }
        let [to, size, from] = *args else {
            return Err(Trap::Helper(helper.name().into()));
        };
        let fault = (-14i64).cast_unsigned();
        let text = matches!(helper, Helper::ReadText | Helper::ReadUserText);
        if !text {
            let bytes = memory.read(from, size as usize).map(<[u8]>::to_vec);
            let result = if bytes.is_ok() { 0 } else { fault };
            memory.write(to, &bytes.unwrap_or_else(|_| vec![0; size as usize]))?;
            return Ok(result);
        }
        let mut bytes = Vec::new();
        for at in from..from + size.saturating_sub(1) {
            match memory.read(at, 1).map(|b| b[0]) {
                Ok(0) => break,
                Ok(byte) => bytes.push(byte),
                Err(_) => return Ok(fault),
            }
        }
        bytes.push(0);
        memory.write(to, &bytes)?;
        Ok(bytes.len() as u64)
    }

    fn location(&mut self, _: &MemoryOperand) -> Option<u64> {
        None
    }
}

/// A text in a slot of at least that many bytes.
pub(crate) fn slot(text: &[u8], least: usize) -> Vec<u8> {
    let mut bytes = text.to_vec();
    bytes.resize((text.len() / 8 * 8 + 8).max(least), 0);
    bytes
}

/// Texts of some letters only, so that many of them have common beginnings and parts; sometimes of
/// all bytes but NUL.
pub(crate) fn text(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let few = vec(
        prop_oneof![4 => Just(b'a'), 1 => Just(b'b'), 1 => Just(0xff), 1 => Just(1)],
        0..most,
    );
    prop_oneof![3 => few, 1 => vec(1..=255u8, 0..most)]
}

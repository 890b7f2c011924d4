//! Where an object's functions of LIR come from. Only listings need the functions themselves.

use spile_lir::Module;
use spile_lir::func::ConstantData;
use spile_lir::library::routine::Routine;

/// The functions of LIR in an object, in their order of definition.
#[derive(Debug, Clone, Default)]
pub struct LirSources(pub(super) Vec<Source>);

/// Where functions come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A request to the run-time library, with the constants that only the caller has.
    Routine(Routine, Vec<ConstantData>),
    /// A module that is built.
    Module(Module),
}

impl LirSources {
    /// Whether there is no function.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of functions that were emitted for this object. Others have templates.
    pub fn emitted(&self) -> Vec<&str> {
        let modules = self.0.iter().filter_map(|source| match source {
            Source::Routine(..) => None,
            Source::Module(module) => Some(&module.funcs),
        });
        modules.flatten().map(|f| &*f.name).collect()
    }

    /// The functions as they are before registers and callbacks, as one module.
    pub fn module(&self) -> Module {
        let mut merged = Module::default();
        for source in &self.0 {
            let module = match source {
                Source::Routine(routine, given) => routine.module(given),
                Source::Module(module) => module.clone(),
            };
            for data in module.data {
                if merged.data(&data.name).is_none() {
                    merged.data.push(data);
                }
            }
            for declared in module.externs {
                if !merged.externs.contains(&declared) {
                    merged.externs.push(declared);
                }
            }
            merged.funcs.extend(module.funcs);
        }
        merged
    }
}

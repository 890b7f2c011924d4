//! The templates of [`spile_ebpf::prebuilt`], which the build script wrote. Debug builds compare each linked
//! function with the emitter's.

mod find;
#[cfg(test)]
mod tests;

pub(crate) use find::find;

//! Finds the template of a request.

use std::sync::LazyLock;

use spile_ebpf::emit::CpuBlocks;
use spile_ebpf::prebuilt::Blocks;
use spile_ebpf::prebuilt::samples::samples;
use spile_ebpf::prebuilt::template::{Code, Field, Part, Template, TemplateTarget};
use spile_lir::library::routine::Routine;

/// The templates, each with the index of its sample.
pub(super) static TEMPLATES: &[(usize, Template)] =
    include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// The template of a request, if there is one.
pub(crate) fn find(routine: &Routine, blocks: Option<CpuBlocks>) -> Option<&'static Template> {
    static SHAPES: LazyLock<Vec<Routine>> =
        LazyLock::new(|| samples().iter().map(Routine::shape).collect());
    let shape = routine.shape();
    let sample = SHAPES.iter().position(|s| *s == shape)?;
    let known = match blocks {
        None => Blocks::None,
        Some(blocks) if blocks.count.is_power_of_two() => Blocks::PowerOfTwo,
        Some(_) => Blocks::Other,
    };
    let of_sample = TEMPLATES.iter().filter(|(s, _)| *s == sample);
    let mut templates = of_sample.map(|(_, template)| template);
    templates.find(|t| t.blocks == Blocks::None || t.blocks == known)
}

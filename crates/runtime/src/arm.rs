//! What comes between `begin` and the first hit: markers whose programs see that they are probed.

use spile_ir::Program;

use crate::code;
use crate::error::Error;
use crate::kernel_side::Kernel;
use crate::load::Links;
use crate::probed::Probed;

/// Attaches the markers that have semaphores: programs take these as a promise that somebody
/// listens, so handlers run already. Gives a warning, where places were left out.
///
/// # Errors
/// [`Error::Attach`] and [`Error::Changed`], as for all that is attached.
pub fn raise_semaphores(
    kernel: &Kernel,
    program: &Program,
    links: &mut Links,
    probed: &Probed,
) -> Result<Option<String>, Error> {
    let Some(loaded) = kernel.loaded().filter(|l| l.raises()) else {
        return Ok(None);
    };
    let known = links.refused().len();
    loaded.attach_raising(program, links)?;
    probed.unchanged()?;
    Ok(code::refusals(&links.refused()[known..]))
}

//! A marker.

use super::operand::MarkerArg;

/// A marker at one location; several locations can have the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Provider.
    pub provider: String,
    /// Name.
    pub name: String,
    /// Address of the site, as the file is linked.
    pub address: u64,
    /// The site's offset in the file, which is what uprobes take.
    pub offset: u64,
    /// File offset of the semaphore (two bytes); 0 for none.
    pub semaphore: u64,
    /// Arguments; the first is `$arg1`.
    pub args: Vec<MarkerArg>,
}

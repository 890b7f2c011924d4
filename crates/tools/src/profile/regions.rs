//! Availability of the program's regions: the library that reports them, and the reason where it is
//! missing.

use std::collections::BTreeMap;

use spile_kernel::process;

use super::program;
use super::times::{self, CountFolder};
use spile_plain::messages::print_stderr;

/// The parts that are missing without the library.
const ALL: [(&str, &[&str]); 2] = [
    (
        "regions of OpenMP",
        &["libgomp.so", "libomp.so", "libiomp5.so"],
    ),
    ("calls of MPI", &["libmpi.so", "libmpich.so", "libmpi_"]),
];

/// What is in the file of a program that has such parts or named regions in it. Files without symbols still have the names
/// of OpenMP's environment variables.
const IN_FILES: [&[u8]; 4] = [b"GOMP_", b"OMP_NUM_THREADS", b"MPI_Init", b"spile_region_"];

/// Whether the program of a process can have regions; false if its file cannot be read any more.
pub(super) fn may_have_any(pid: u32) -> bool {
    let bytes = std::fs::read(format!("/proc/{pid}/exe")).unwrap_or_default();
    program::contains(&bytes, &IN_FILES)
}

/// Makes the command load the library that reports which region of a program a thread is in.
/// Returns the folder where it counts times, and the library's file.
///
/// # Errors
/// Why there is no library; the user has been told.
pub(super) fn load(trace: bool) -> Result<(Option<CountFolder>, String), String> {
    let own_folder = spile_debuginfo::trust::own_folder;
    let environment = spile_context::environment(|name| std::env::var_os(name), own_folder);
    let mut variables = environment.map_err(|why| {
        print_stderr(format_args!(
            "WARNING: regions of the program are not reported: {why}\n"
        ));
        format!("{}: {why}", missing_parts(&BTreeMap::new()))
    })?;
    // `environment` puts our library in front of the others.
    let loaded = variables.iter().find(|(name, _)| *name == "LD_PRELOAD");
    let library =
        loaded.and_then(|(_, libraries)| libraries.to_str()?.split(':').next().map(str::to_owned));
    let folder = CountFolder::new(trace);
    match &folder {
        Ok(folder) => variables.push((times::VARIABLE, folder.value())),
        Err(why) => print_stderr(format_args!(
            "WARNING: times in regions are not counted, only their system calls: {why}\n"
        )),
    }
    for (name, value) in variables {
        // SAFETY: no thread was started yet, so none reads the environment at the same time.
        unsafe { std::env::set_var(name, value) };
    }
    Ok((folder.ok(), library.unwrap_or_default()))
}

/// The message about the parts that are missing for a process that was already running, and whether it
/// uses a library that has them.
pub(crate) fn missing(pid: u32) -> (String, bool) {
    let mut libraries = BTreeMap::new();
    for mapping in process::mappings(pid).unwrap_or_default() {
        let file = mapping.path.rsplit('/').next().unwrap_or_default();
        let is_of = |names: &[&str]| names.iter().any(|n| file.starts_with(n));
        if let Some((part, _)) = ALL.iter().find(|(_, names)| is_of(names)) {
            libraries.entry(*part).or_insert_with(|| file.to_owned());
        }
    }
    let why = format!(
        "{}: the region library is loaded when a command starts (`spile profile -- CMD`), and process {pid} was \
         already running",
        missing_parts(&libraries)
    );
    (why, !libraries.is_empty())
}

/// The missing parts, each with the library that shows that the program has them.
fn missing_parts(libraries: &BTreeMap<&str, String>) -> String {
    let each = ALL.iter().map(|(part, _)| match libraries.get(part) {
        Some(library) => format!("{part} (the process has {library})"),
        None => (*part).to_owned(),
    });
    let each: Vec<String> = each.collect();
    format!("{}, named regions", each.join(", "))
}

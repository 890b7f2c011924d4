//! Whether the program's regions are told: the library for it, and why there is none.

use std::collections::BTreeMap;

use spile_kernel::process;

use super::times::{self, Folder};
use crate::report::tell;

/// What is not told without the library.
const ALL: [(&str, &[&str]); 2] = [
    (
        "regions of OpenMP",
        &["libgomp.so", "libomp.so", "libiomp5.so"],
    ),
    ("calls of MPI", &["libmpi.so", "libmpich.so", "libmpi_"]),
];

/// Has the command load the library that tells which part of a program a thread is in; the folder where it
/// counts times, and the library's file.
///
/// # Errors
/// Why there is no library; the user was told so.
pub fn load(trace: bool) -> Result<(Option<Folder>, String), String> {
    let own = spile_debuginfo::trust::own_folder;
    let found = spile_context::environment(|name| std::env::var_os(name), own);
    let mut variables = found.map_err(|why| {
        tell(format_args!(
            "WARNING: regions of the program are not told: {why}\n"
        ));
        format!("{}: {why}", what(&BTreeMap::new()))
    })?;
    // `environment` puts our library in front of the others.
    let loaded = variables.iter().find(|(name, _)| *name == "LD_PRELOAD");
    let library = loaded.and_then(|(_, all)| all.to_str()?.split(':').next().map(str::to_owned));
    let folder = Folder::new(trace);
    match &folder {
        Ok(folder) => variables.push((times::VARIABLE, folder.value())),
        Err(why) => tell(format_args!(
            "WARNING: times in regions are not counted, only their system calls: {why}\n"
        )),
    }
    for (name, value) in variables {
        // SAFETY: no thread was started yet, so none reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    Ok((folder.ok(), library.unwrap_or_default()))
}

/// What is not told of a process that ran already, and why.
pub fn missing(pid: u32) -> String {
    let mut libraries = BTreeMap::new();
    for mapping in process::mappings(pid).unwrap_or_default() {
        let file = mapping.path.rsplit('/').next().unwrap_or_default();
        let (what, _) = match ALL
            .iter()
            .find(|(_, names)| names.iter().any(|n| file.starts_with(n)))
        {
            Some(found) => found,
            None => continue,
        };
        libraries.entry(*what).or_insert_with(|| file.to_owned());
    }
    format!(
        "{}: the library that tells them is loaded when a command starts (`spile profile -- CMD`), and process {pid} \
         ran already",
        what(&libraries)
    )
}

/// What is not told, with the library by which it is known that the program has it.
fn what(libraries: &BTreeMap<&str, String>) -> String {
    let each = ALL.iter().map(|(what, _)| match libraries.get(what) {
        Some(library) => format!("{what} (the process has {library})"),
        None => (*what).to_owned(),
    });
    let each: Vec<String> = each.collect();
    format!("{}, parts that the program names", each.join(", "))
}

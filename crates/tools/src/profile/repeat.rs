//! Records a command several times, for comparisons by `spile diff`.

use std::path::Path;

use spile_cast::Cast;
use spile_profile::Run;
use spile_profile::model::{Header, Profile};
use spile_profile::report::{counted, time};

use super::recording_file::file_name;
use spile_plain::messages::{Failure, fail, print_stderr};

/// Records `runs` runs into a folder; each is a run of its own. `record` records one into a file. The
/// result is the status of the first run without success. A run that ends by a signal is the last:
/// Ctrl-C ends all.
pub(super) fn run(
    folder: Option<&Path>,
    runs: u32,
    header: Header,
    record: &mut dyn FnMut(Header, &Path) -> Result<Profile, Failure>,
) -> Result<u8, Failure> {
    if header.rank.is_some() {
        return Err(fail(
            "a launcher starts a rank once: start it several times instead of -r, with a folder for all",
        ));
    }
    let Some(folder) = folder else {
        return Err(fail("-r needs a folder: -o DIR"));
    };
    std::fs::create_dir_all(folder)
        .map_err(|e| fail(format_args!("cannot make {}: {e}", folder.display())))?;
    let (mut code, mut done) = (0, 0);
    for number in 1..=runs {
        let mut header = header.clone();
        header.run = format!("{}-{number}", header.run);
        let to = folder.join(file_name(&format!("-{number:03}"), &header));
        let profile = record(header, &to)?;
        let status = profile.end.as_ref().and_then(|end| end.status);
        let elapsed = Run::new(vec![profile]).summary().elapsed;
        print_stderr(format!("run {number} of {runs}: {}\n", time(elapsed)));
        done = number;
        if code == 0 {
            code = exit_code(status);
        }
        if status.is_some_and(|status| status & 0x7f != 0) {
            break;
        }
    }
    let recordings = counted(done.into(), "recording");
    print_stderr(format!(
        "{recordings} in {0}: `spile diff {0} OTHER` compares them with those in another folder\n",
        folder.display()
    ));
    Ok(code)
}

/// The exit status that a shell derives from a process's wait status.
pub(crate) fn exit_code(status: Option<i32>) -> u8 {
    match status {
        Some(status) if status & 0x7f != 0 => 128 + (status & 0x7f).low8(),
        Some(status) => (status >> 8).low8(),
        None => 0,
    }
}

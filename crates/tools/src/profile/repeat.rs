//! Records a command several times, for comparisons by `spile diff`.

use spile_profile::Run;
use spile_profile::model::Header;
use spile_profile::report::{counted, time};

use super::recording_file::file_name;
use super::{Passes, ProfileCommand, exit_code, recorded};
use spile_plain::messages::{Failure, fail, print_stderr};

/// Records `runs` runs into the folder of `-o`; each is a run of its own. The result is the status of
/// the first run without success. A run that ends by a signal is the last: Ctrl-C ends all.
pub(super) fn run(
    cli: &ProfileCommand,
    runs: u32,
    header: Header,
    passes: Passes<'_>,
) -> Result<u8, Failure> {
    if header.rank.is_some() {
        return Err(fail(
            "a launcher starts a rank once: start it several times instead of -r, with a folder for all",
        ));
    }
    let Some(folder) = &cli.output else {
        return Err(fail("-r needs a folder: -o DIR"));
    };
    std::fs::create_dir_all(folder)
        .map_err(|e| fail(format_args!("cannot make {}: {e}", folder.display())))?;
    let (mut code, mut done) = (0, 0);
    for number in 1..=runs {
        let mut header = header.clone();
        header.run = format!("{}-{number}", header.run);
        let to = folder.join(file_name(&format!("-{number:03}"), &header));
        let profile = recorded(cli, header, Some(&to), passes)?;
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

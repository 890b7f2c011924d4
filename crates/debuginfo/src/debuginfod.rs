//! Fetches debugging information from debuginfod servers over plain HTTP, and stores it.
//!
//! Only servers in the user's `DEBUGINFOD_URLS` are asked. `https` needs a TLS library, and none
//! exists in Rust alone, so it is refused with a note that names two ways out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::map::write_whole;
use crate::trust;

/// Maximum wait for a connection, and for the whole answer.
const CONNECT: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(600);
/// Maximum size of a fetched file.
const MAX_FILE: u64 = 16 << 30;

/// The path of the debugging information for a build-id (hexadecimal), fetched if it is not cached.
/// Errors are added to `notes`.
pub(crate) fn fetch(
    urls: &[String],
    cache: &Path,
    id: &str,
    notes: &mut Vec<String>,
) -> Option<PathBuf> {
    let dir = cache.join("debuginfod").join(id);
    let path = dir.join("debuginfo");
    if trust::is_own(&dir) && path.exists() {
        return Some(path);
    }
    if let Err(e) = trust::own_folder(&dir) {
        notes.push(format!("{}: {e}", dir.display()));
        return None;
    }
    for base in urls {
        let url = format!("{}/buildid/{id}/debuginfo", base.trim_end_matches('/'));
        if !url.starts_with("http://") {
            notes.push(format!(
                "{base}: only http:// servers can be asked; run `debuginfod-find debuginfo {id}` \
                 (spile finds its files), or a local `debuginfod`, which asks others"
            ));
            continue;
        }
        match download(&url, &path) {
            Ok(()) => return Some(path),
            Err(e) => notes.push(format!("{url}: {e}")),
        }
    }
    // Leave no empty directory for a file that no server has.
    let _ = fs::remove_dir(&dir);
    None
}

/// Fetches a file; a broken connection leaves no part of it.
fn download(url: &str, path: &Path) -> io::Result<()> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(WHOLE))
        .build()
        .into();
    let answer = agent.get(url).call().map_err(io::Error::other)?;
    let body = answer.into_body().into_with_config().limit(MAX_FILE);
    write_whole(path, |file| io::copy(&mut body.reader(), file).map(|_| ()))
}

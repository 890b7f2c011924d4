//! Puts the pages for browsers together, as spile contains them: compressed, with their styles and programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// A page: its file, and what the files of each mark's text are, in order.
type Page = (
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

const PAGES: [Page; 2] = [
    (
        "page",
        &[
            ("@STYLE@", &["page.css"]),
            (
                "@PROGRAM@",
                &["base.js", "table.js", "timeline.js", "flame.js", "page.js"],
            ),
        ],
    ),
    ("diff", &[("@PROGRAM@", &["diff.js"])]),
];

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/html");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let read = |name: &str| {
        let path = folder.join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        std::fs::read_to_string(path).expect("a file of the page")
    };
    for (name, marks) in PAGES {
        let mut text = read(&format!("{name}.html"));
        for (mark, files) in marks {
            let content: String = files.iter().map(|file| read(file)).collect();
            text = text.replace(mark, &content);
        }
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(text.as_bytes()).expect("memory");
        let packed = packed.finish().expect("memory");
        std::fs::write(out.join(name).with_extension("z"), packed).expect("writable");
    }
}

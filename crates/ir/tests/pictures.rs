//! Histograms are drawn as in the pictures that come with SystemTap's examples: every picture is
//! parsed into counts and drawn again. Skipped where the examples are not installed.

#[macro_use]
extern crate spile_testing;
spile_testing::main!();

use spile_ir::Hist;

/// The pictures in a text: from the header to the last row.
fn pictures(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let starts = (0..lines.len()).filter(|i| lines[*i].trim_start().starts_with("value |---"));
    starts
        .map(|i| {
            let rows = lines[i + 1..].iter();
            let rows = rows.take_while(|l| l.contains(" |") || l.trim() == "~");
            std::iter::once(lines[i]).chain(rows.copied()).collect()
        })
        .collect()
}

/// The value and the count of a row; `None` for `~`, and for the under- and overflow rows of a
/// linear histogram.
fn row(line: &str) -> Option<(i64, u64)> {
    let (value, rest) = line.split_once(" |")?;
    let count = rest.trim_start_matches('@').trim();
    Some((value.trim().parse().ok()?, count.parse().ok()?))
}

#[test]
fn histograms_of_the_examples_are_drawn_alike() {
    let paths = spile_testing::files::example_files(&["txt"]);
    if paths.is_empty() {
        spile_testing::skip("the package systemtap-doc is not installed");
    }
    let (mut drawn, mut wrong) = (0, String::new());
    for path in &paths {
        let text = std::fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        for picture in pictures(&text) {
            let rows: Vec<(i64, u64)> = picture.iter().filter_map(|l| row(l)).collect();
            let power = |v: i64| v == 0 || v.unsigned_abs().is_power_of_two();
            if rows.is_empty() || !rows.iter().all(|(v, _)| power(*v)) {
                continue;
            }
            let mut counts = vec![0; Hist::Log.buckets() as usize];
            for (v, n) in &rows {
                counts[Hist::Log.bucket(*v)] += n;
            }
            let got = Hist::Log.draw(&counts);
            let want = picture.join("\n");
            let got: Vec<&str> = got.lines().map(str::trim_end).collect();
            drawn += 1;
            if got[..got.len() - 1].join("\n") != want {
                wrong.push_str(&format!("{}\n{want}\n{}\n", path.display(), got.join("\n")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(drawn > 10, "{drawn}");
}

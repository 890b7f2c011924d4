//! Comments that document what stands below them.

/// The comment block that ends on the line above the offset `item`, without its marks.
pub fn doc_comment(text: &str, item: usize) -> Option<String> {
    let before = text.get(..item)?;
    let line_start = before.rfind('\n')?;
    if !before[line_start..].trim().is_empty() {
        return None;
    }
    let above = before[..line_start].trim_end_matches('\r');
    let block = above.trim_end_matches([' ', '\t']);
    if block.ends_with("*/") {
        let start = block.rfind("/*")?;
        let inner = block.get(start + 2..block.len() - 2)?;
        let strip = |l: &str| {
            let l = l.trim();
            let l = l.trim_start_matches('*');
            l.strip_prefix(' ').unwrap_or(l).trim_end().to_owned()
        };
        return trimmed(inner.lines().map(strip).collect());
    }
    let mut lines: Vec<String> = Vec::new();
    for line in above.rsplit('\n') {
        let line = line.trim();
        let Some(rest) = line.strip_prefix("//").or_else(|| line.strip_prefix('#')) else {
            break;
        };
        lines.push(rest.strip_prefix(' ').unwrap_or(rest).to_owned());
    }
    lines.reverse();
    trimmed(lines)
}

/// Joins the lines without empty ones at both ends; `None` if all are empty.
fn trimmed(lines: Vec<String>) -> Option<String> {
    let text = lines.join("\n");
    let text = text.trim_matches(['\n', ' ', '\t']);
    (!text.is_empty()).then(|| text.to_owned())
}

//! The files of an export.

/// Files of an export: their paths in its folder, or a single one with its usual name, and their
/// content.
pub type ExportFiles = Vec<(String, Vec<u8>)>;

/// A JSON value as a file.
pub(super) fn json(name: &str, value: &serde_json::Value) -> ExportFiles {
    vec![(name.to_owned(), value.to_string().into_bytes())]
}

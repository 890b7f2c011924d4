//! pprof: `profile.proto` of github.com/google/pprof, compressed. Samples have the number of calls
//! and their nanoseconds as values, and rank, host, thread and state as labels.

use std::io::Write as _;

use prost::Message as _;
use spile_cast::Cast;

use super::files::ExportFiles;
use super::table::Table;
use crate::paths::{LocationKind, PathLocation, threads};
use crate::run::Run;

/// Messages as in `proto/profile.proto` there; unused fields are left out.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub str: i64,
        #[prost(int64, tag = "3")]
        pub num: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}

/// The tables of the profile, numbered from 0: strings, the files of code, and locations.
#[derive(Default)]
struct ProfileTables {
    strings: Table<String>,
    mappings: Table<String>,
    locations: Table<PathLocation>,
}

impl ProfileTables {
    fn string(&mut self, text: &str) -> i64 {
        self.strings.number(text).fit()
    }

    fn label(&mut self, key: &str, text: &str) -> proto::Label {
        proto::Label {
            key: self.string(key),
            str: self.string(text),
            num: 0,
        }
    }

    fn value_type(&mut self, what: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            r#type: self.string(what),
            unit: self.string(unit),
        }
    }

    /// Moves the tables to the profile. Ids count from 1.
    fn finish(mut self, out: &mut proto::Profile) {
        for (id, location) in (1..).zip(std::mem::take(&mut self.locations).values) {
            let name = self.string(&location.shown());
            let filename = self.string(location.file.as_deref().unwrap_or_default());
            out.function.push(proto::Function {
                id,
                name,
                system_name: name,
                filename,
            });
            let line = proto::Line {
                function_id: id,
                line: location.line.map_or(0, i64::from),
            };
            let mapping = location.binary().map(|file| self.mappings.number(&*file));
            out.location.push(proto::Location {
                id,
                mapping_id: mapping.map_or(0, |number| number as u64 + 1),
                line: vec![line],
            });
        }
        for (id, file) in (1..).zip(std::mem::take(&mut self.mappings).values) {
            out.mapping.push(proto::Mapping {
                id,
                filename: self.string(&file),
                has_functions: true,
            });
        }
        out.string_table = self.strings.values;
    }
}

/// The file of the command, if it is on a path; otherwise that of the function with most time below
/// it.
fn program(run: &Run) -> Option<String> {
    let profile = run.profiles.first()?;
    let command = profile.header.command.first()?.rsplit('/').next()?;
    let threads = threads(profile);
    let samples = threads.iter().flat_map(|t| &t.samples);
    let files = samples.filter_map(|s| {
        let function = s.path.iter().find(|p| p.kind == LocationKind::Function)?;
        let file = function.module.as_deref()?;
        Some((file == command, s.ns, file))
    });
    files.max().map(|(.., file)| file.to_owned())
}

/// One compressed message.
pub(super) fn export(run: &Run) -> ExportFiles {
    let mut tables = ProfileTables::default();
    // The first string is the empty one.
    tables.string("");
    let types = [("calls", "count"), ("time", "nanoseconds")];
    let value = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut out = proto::Profile {
        sample_type: types
            .map(|(what, unit)| tables.value_type(what, unit))
            .to_vec(),
        default_sample_type: tables.string("time"),
        time_nanos: value(run.origin()),
        duration_nanos: value(run.summary().elapsed),
        ..proto::Profile::default()
    };
    if let Some(program) = program(run) {
        // Readers take the first mapping for the program.
        tables.mappings.number(&program);
    }
    for profile in &run.profiles {
        for thread in threads(profile) {
            let of_thread = [
                tables.label("rank", &profile.title()),
                tables.label("host", &profile.header.host),
                tables.label("thread", &thread.title()),
            ];
            for sample in &thread.samples {
                let mut label = of_thread.to_vec();
                label.extend(sample.part.map(|part| tables.label("state", part.name())));
                let locations = sample.path.iter().rev();
                let id = |at| tables.locations.number(at) as u64 + 1;
                out.sample.push(proto::Sample {
                    location_id: locations.map(id).collect(),
                    value: vec![value(sample.calls()), value(sample.ns)],
                    label,
                });
            }
        }
    }
    tables.finish(&mut out);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    // Writing to memory cannot fail.
    let done = gzip.write_all(&out.encode_to_vec());
    let done = done.and_then(|()| gzip.finish());
    vec![("profile.pb.gz".to_owned(), done.unwrap_or_default())]
}

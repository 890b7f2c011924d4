//! pprof: `profile.proto` of github.com/google/pprof, compressed. Samples have the number of calls
//! and their nanoseconds as values, and rank, host and thread as labels.

use std::collections::HashMap;
use std::io::Write as _;

use prost::Message as _;
use spile_cast::Cast;

use super::files::ExportFiles;
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

/// The profile under construction, and indexes of its tables.
#[derive(Default)]
struct ProfileTables {
    out: proto::Profile,
    strings: HashMap<String, i64>,
    mappings: HashMap<String, u64>,
    locations: HashMap<PathLocation, u64>,
}

impl ProfileTables {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.out.string_table.len().fit::<i64>();
        self.out.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    fn mapping(&mut self, module: &str) -> u64 {
        if let Some(id) = self.mappings.get(module) {
            return *id;
        }
        let id = self.out.mapping.len() as u64 + 1;
        let filename = self.string(module);
        self.out.mapping.push(proto::Mapping {
            id,
            filename,
            has_functions: true,
        });
        self.mappings.insert(module.to_owned(), id);
        id
    }

    fn location(&mut self, location: &PathLocation) -> u64 {
        if let Some(id) = self.locations.get(location) {
            return *id;
        }
        let id = self.out.location.len() as u64 + 1;
        let name = self.string(if location.name.is_empty() {
            "?"
        } else {
            &location.name
        });
        let filename = self.string(location.file.as_deref().unwrap_or_default());
        let module = location.module.as_ref();
        let mapping_id = module.map_or(0, |m| self.mapping(m));
        self.out.function.push(proto::Function {
            id,
            name,
            system_name: name,
            filename,
        });
        let line = proto::Line {
            function_id: id,
            line: location.line.map_or(0, i64::from),
        };
        self.out.location.push(proto::Location {
            id,
            mapping_id,
            line: vec![line],
        });
        self.locations.insert(location.clone(), id);
        id
    }

    fn value_type(&mut self, what: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            r#type: self.string(what),
            unit: self.string(unit),
        }
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
    tables.out.sample_type = types
        .map(|(what, unit)| tables.value_type(what, unit))
        .to_vec();
    tables.out.default_sample_type = tables.string("time");
    let value = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    if let Some(program) = program(run) {
        // Readers take the first mapping for the program.
        tables.mapping(&program);
    }
    let keys = ["rank", "host", "thread"].map(|key| tables.string(key));
    for profile in &run.profiles {
        for thread in threads(profile) {
            let texts = [profile.title(), profile.header.host.clone(), thread.title()];
            let label = |(key, text): (i64, &String)| proto::Label {
                key,
                str: tables.string(text),
                num: 0,
            };
            let labels: Vec<_> = keys.into_iter().zip(&texts).map(label).collect();
            for sample in &thread.samples {
                let locations = sample.path.iter().rev();
                let sample = proto::Sample {
                    location_id: locations.map(|p| tables.location(p)).collect(),
                    value: vec![
                        value(if sample.is_call() { sample.count } else { 0 }),
                        value(sample.ns),
                    ],
                    label: labels.clone(),
                };
                tables.out.sample.push(sample);
            }
        }
    }
    tables.out.time_nanos = value(run.origin());
    tables.out.duration_nanos = value(run.summary().elapsed);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let bytes = tables.out.encode_to_vec();
    // Writing to memory cannot fail.
    let done = gzip.write_all(&bytes).and_then(|()| gzip.finish());
    vec![("profile.pb.gz".to_owned(), done.unwrap_or_default())]
}

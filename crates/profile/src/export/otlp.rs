//! OpenTelemetry: a message `ProfilesData`, which has the bytes of the request that collectors take.
//! A resource is a rank or process. It has two profiles with the same stacks: times, and numbers of
//! calls.

mod proto;

use prost::Message as _;
use spile_cast::Cast;

use super::files::ExportFiles;
use super::table::Table;
use crate::model::Profile;
use crate::paths::{LocationKind, PathLocation, PathSample, threads};
use crate::run::Run;
use proto::AnyValue;

/// The tables that all profiles share. In each, 0 is an empty value that stands for none.
struct Dictionary {
    strings: Table<String>,
    mappings: Table<proto::Mapping>,
    functions: Table<proto::Function>,
    locations: Table<PathLocation>,
    stacks: Table<proto::Stack>,
    attributes: Table<proto::KeyValueAndUnit>,
}

impl Dictionary {
    fn new() -> Dictionary {
        Dictionary {
            strings: Table::with(String::new()),
            mappings: Table::with(proto::Mapping::default()),
            functions: Table::with(proto::Function::default()),
            locations: Table::with(PathLocation::default()),
            stacks: Table::with(proto::Stack::default()),
            attributes: Table::with(proto::KeyValueAndUnit::default()),
        }
    }

    fn string(&mut self, text: &str) -> i32 {
        self.strings.number(text).fit()
    }

    fn attribute(&mut self, key: &str, value: AnyValue) -> i32 {
        let attribute = proto::KeyValueAndUnit {
            key_strindex: self.string(key),
            value: Some(value),
        };
        self.attributes.number(&attribute).fit()
    }

    fn stack(&mut self, sample: &PathSample) -> i32 {
        let locations = sample.path.iter().rev();
        let numbers = locations.map(|at| self.locations.number(at).fit());
        let location_indices = numbers.collect();
        let stack = proto::Stack { location_indices };
        self.stacks.number(&stack).fit()
    }

    fn location(&mut self, location: &PathLocation) -> proto::Location {
        let name = self.string(&location.shown());
        let function = proto::Function {
            name_strindex: name,
            system_name_strindex: name,
            filename_strindex: self.string(location.file.as_deref().unwrap_or_default()),
        };
        let mapping = proto::Mapping {
            filename_strindex: self.string(&location.binary().unwrap_or_default()),
        };
        let kind = frame_type(location.kind).map(text);
        let kind = kind.map(|kind| self.attribute("profile.frame.type", kind));
        proto::Location {
            mapping_index: self.mappings.number(&mapping).fit(),
            lines: vec![proto::Line {
                function_index: self.functions.number(&function).fit(),
                line: location.line.map_or(0, i64::from),
            }],
            attribute_indices: kind.into_iter().collect(),
        }
    }

    fn finish(mut self) -> proto::ProfilesDictionary {
        let locations = std::mem::take(&mut self.locations).values;
        let mut location_table = vec![proto::Location::default()];
        location_table.extend(locations[1..].iter().map(|at| self.location(at)));
        proto::ProfilesDictionary {
            mapping_table: self.mappings.values,
            location_table,
            function_table: self.functions.values,
            link_table: vec![()],
            string_table: self.strings.values,
            attribute_table: self.attributes.values,
            stack_table: self.stacks.values,
        }
    }
}

/// The value of the convention `profile.frame.type`, which has none for what is no code.
fn frame_type(kind: LocationKind) -> Option<&'static str> {
    match kind {
        LocationKind::Function => Some("native"),
        LocationKind::Call | LocationKind::Kernel => Some("kernel"),
        LocationKind::Rank | LocationKind::Thread | LocationKind::Region | LocationKind::State => {
            None
        }
    }
}

fn text(text: &str) -> AnyValue {
    AnyValue {
        string: Some(text.to_owned()),
        int: None,
    }
}

fn number(number: u32) -> AnyValue {
    AnyValue {
        string: None,
        int: Some(number.into()),
    }
}

/// One message.
pub(super) fn export(run: &Run) -> ExportFiles {
    let mut dictionary = Dictionary::new();
    let scope = proto::InstrumentationScope {
        name: "spile".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let of_resource = |profile: &Profile| proto::ResourceProfiles {
        resource: Some(resource(profile)),
        scope_profiles: vec![proto::ScopeProfiles {
            scope: Some(scope.clone()),
            profiles: profiles(profile, &mut dictionary),
        }],
    };
    let out = proto::ProfilesData {
        resource_profiles: run.profiles.iter().map(of_resource).collect(),
        dictionary: Some(dictionary.finish()),
    };
    vec![("profile.otlp.pb".to_owned(), out.encode_to_vec())]
}

/// The rank or process, named by OpenTelemetry's conventions.
fn resource(profile: &Profile) -> proto::Resource {
    let header = &profile.header;
    let command = header.command.first().map_or("", String::as_str);
    let program = command.rsplit('/').next().unwrap_or_default();
    let mut attributes = vec![
        ("service.name", text(program)),
        ("service.instance.id", text(&profile.title())),
        ("host.name", text(&header.host)),
        ("host.arch", text(&header.arch)),
        ("os.type", text("linux")),
        ("os.version", text(&header.kernel)),
        ("process.command_line", text(&header.command_line())),
    ];
    attributes.extend(header.pid.map(|pid| ("process.pid", number(pid))));
    let attribute = |(key, value): (&str, AnyValue)| proto::KeyValue {
        key: key.to_owned(),
        value: Some(value),
    };
    proto::Resource {
        attributes: attributes.into_iter().map(attribute).collect(),
    }
}

/// The profile of times, which readers show first, and that of calls.
fn profiles(profile: &Profile, dictionary: &mut Dictionary) -> Vec<proto::Profile> {
    let mut new = |what: &str, unit: &str| proto::Profile {
        sample_type: Some(proto::ValueType {
            type_strindex: dictionary.string(what),
            unit_strindex: dictionary.string(unit),
        }),
        samples: Vec::new(),
        time_unix_nano: profile.header.started_unix_ns,
        duration_nano: profile.data.at_ns,
    };
    let mut times = new("wall", "nanoseconds");
    let mut calls = new("calls", "count");
    for thread in threads(profile) {
        let name = thread.thread.map_or("", |t| &t.name);
        let of_thread = [
            dictionary.attribute("thread.id", number(thread.tid)),
            dictionary.attribute("thread.name", text(name)),
        ];
        for sample in &thread.samples {
            let mut attribute_indices = of_thread.to_vec();
            let state = sample.part.map(|part| text(part.name()));
            attribute_indices.extend(state.map(|state| dictionary.attribute("state", state)));
            let stack_index = dictionary.stack(sample);
            for (profile, value) in [(&mut times, sample.ns), (&mut calls, sample.calls())] {
                if value > 0 {
                    profile.samples.push(proto::Sample {
                        stack_index,
                        attribute_indices: attribute_indices.clone(),
                        values: vec![i64::try_from(value).unwrap_or(i64::MAX)],
                    });
                }
            }
        }
    }
    vec![times, calls]
}

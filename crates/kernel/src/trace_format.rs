//! The fields of the record that the kernel writes for a trace event, from the event's file `format` in tracefs.
//!
//! BTF has the structures of records, but not which event uses which one: events of one class share a
//! structure. The file has the layout of each event.

/// A trace event and the fields of its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFormat {
    /// Its number, as `perf_event_attr.config` has it.
    pub id: u64,
    /// Its own fields in order, without those that all events have (`common_pid`).
    pub fields: Vec<FormatField>,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatField {
    /// Its name.
    pub name: String,
    /// Its C type; of an array, the type of an element.
    pub ty: String,
    /// Offset from the start of the record in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Whether its number is signed.
    pub signed: bool,
    /// The location of its value.
    pub form: FieldForm,
}

/// The location of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldForm {
    /// The field is the value.
    Value,
    /// The field is an array of this many elements.
    Array(u32),
    /// The field is a 32-bit number whose lower half is the offset of an array from the start of the
    /// record (`__data_loc`).
    FromRecord,
    /// The field is a 32-bit number whose lower half is the offset of an array from the end of the field
    /// (`__rel_loc`).
    FromField,
}

impl TraceFormat {
    /// Reads the text of a file `format`. `None` if it has no number.
    #[must_use]
    pub fn parse(text: &str) -> Option<TraceFormat> {
        let id = text.lines().find_map(|l| l.strip_prefix("ID: "))?;
        let fields = text
            .lines()
            .filter_map(|l| l.trim_start().strip_prefix("field:"));
        Some(TraceFormat {
            id: id.trim().parse().ok()?,
            fields: fields
                .filter_map(field)
                .filter(|f| !f.name.starts_with("common_"))
                .collect(),
        })
    }
}

/// A line such as `char comm[16]; offset:8; size:16; signed:0;`, without `field:`.
fn field(line: &str) -> Option<FormatField> {
    let (declaration, rest) = line.split_once(';')?;
    let number = |key: &str| {
        let mut parts = rest.split(';').map(str::trim);
        parts.find_map(|p| p.strip_prefix(key)?.parse::<u32>().ok())
    };
    let (offset, size) = (number("offset:")?, number("size:")?);
    let (form, declaration) = [
        ("__data_loc ", FieldForm::FromRecord),
        ("__rel_loc ", FieldForm::FromField),
    ]
    .into_iter()
    .find_map(|(word, form)| Some((form, declaration.strip_prefix(word)?)))
    .unwrap_or((FieldForm::Value, declaration));
    let (declaration, count) = match declaration.split_once('[') {
        // `char[] name`, of an array elsewhere.
        Some((ty, name)) if form != FieldForm::Value => {
            return Some(FormatField {
                name: name.rsplit(']').next()?.trim().to_owned(),
                ty: ty.trim().to_owned(),
                offset,
                size,
                signed: false,
                form,
            });
        }
        Some((declaration, count)) => (declaration, Some(count.trim_end_matches(']'))),
        None => (declaration, None),
    };
    let start = declaration.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')? + 1;
    let (ty, name) = declaration.split_at_checked(start)?;
    let ty = ty.trim();
    let form = match count {
        None => form,
        // Some kernels write the name of a constant; elements of one byte tell their number by the size.
        Some(count) => FieldForm::Array(match count.parse() {
            Ok(count) => count,
            Err(_) if ty == "char" => size,
            Err(_) => return None,
        }),
    };
    Some(FormatField {
        name: name.to_owned(),
        ty: ty.to_owned(),
        offset,
        size,
        signed: number("signed:") == Some(1),
        form,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_types_and_locations() {
        let text = "name: x\nID: 313\nformat:\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:char other[TASK_COMM_LEN];\toffset:24;\tsize:16;\tsigned:0;\n\
            \tfield:const struct file * f;\toffset:40;\tsize:8;\tsigned:0;\n\
            \tfield:long *p;\toffset:48;\tsize:8;\tsigned:0;\n\
            \tfield:long prev_state;\toffset:56;\tsize:8;\tsigned:1;\n\
            \tfield:__data_loc char[] name;\toffset:64;\tsize:4;\tsigned:0;\n\
            \tfield:__rel_loc u8[] buf;\toffset:68;\tsize:4;\tsigned:0;\n\
            \nprint fmt: \"%s field:int no; offset:1; size:2;\", REC->comm\n";
        let format = TraceFormat::parse(text).expect("a format");
        assert_eq!(format.id, 313);
        let got: Vec<String> = format
            .fields
            .iter()
            .map(|f| {
                let FormatField {
                    name,
                    ty,
                    offset,
                    size,
                    signed,
                    form,
                } = f;
                format!("{ty}|{name} {offset}+{size} {signed} {form:?}")
            })
            .collect();
        assert_eq!(
            got,
            [
                "char|comm 8+16 false Array(16)",
                "char|other 24+16 false Array(16)",
                "const struct file *|f 40+8 false Value",
                "long *|p 48+8 false Value",
                "long|prev_state 56+8 true Value",
                "char|name 64+4 false FromRecord",
                "u8|buf 68+4 false FromField",
            ]
        );
        assert_eq!(TraceFormat::parse("format:\n"), None);
        assert_eq!(
            TraceFormat::parse("ID: 1\n\tfield:;\n\tfield:int;\toffset:x;\n").map(|f| f.fields),
            Some(Vec::new())
        );
    }

    #[test]
    fn formats_of_the_running_kernel_are_read() {
        let fs = match crate::tracepoints::Tracefs::open() {
            Ok(fs) => fs,
            Err(why) => spile_testing::skip!("{why}"),
        };
        let text = fs
            .read("events/sched/sched_switch/format")
            .expect("readable");
        let format = TraceFormat::parse(&text).expect("a format");
        let next = format.fields.iter().find(|f| f.name == "next_comm");
        assert_eq!(next.map(|f| f.form), Some(FieldForm::Array(16)));
        // Each line is a field.
        for (system, event) in [
            ("sched", "sched_process_exec"),
            ("irq", "irq_handler_entry"),
        ] {
            let text = fs.read(&format!("events/{system}/{event}/format"));
            let text = text.expect("readable");
            let lines = text.lines().filter(|l| l.starts_with("\tfield:"));
            let own = lines.filter(|l| !l.contains(" common_")).count();
            let format = TraceFormat::parse(&text).expect("a format");
            assert_eq!(format.fields.len(), own, "{text}");
        }
    }
}

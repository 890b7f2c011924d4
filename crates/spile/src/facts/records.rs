//! Records of trace events: the layout that tracefs gives, with types of the kernel.

use spile_ir::{BinOp, TraceEvent};
use spile_kernel::trace_format::{self, FieldForm, TraceFormat};
use spile_kernel::tracepoints::Tracefs;
use spile_sema::ctype::{CBase, CTy};
use spile_sema::facts::{CTypeId, LocOp, RecordField, TraceRecord, VarLocation};

use super::locations::load;

/// The lower half of a field that says where an array is.
const OFFSET: i64 = 0xffff;

/// The record of a trace event. `type_by_name` finds types of the kernel.
pub(crate) fn record(
    tracefs: &Tracefs,
    system: &str,
    name: &str,
    type_by_name: impl Fn(&str) -> Option<CTypeId>,
) -> Option<TraceRecord> {
    let text = tracefs.read(&format!("events/{system}/{name}/format"));
    let format = TraceFormat::parse(&text.ok()?)?;
    let field = |f: &trace_format::FormatField| {
        Some(RecordField {
            name: f.name.as_str().into(),
            ty: field_type(f, &type_by_name)?,
            loc: location(f),
        })
    };
    Some(TraceRecord {
        event: TraceEvent {
            system: system.into(),
            name: name.into(),
            id: format.id,
        },
        fields: format.fields.iter().filter_map(field).collect(),
    })
}

fn location(f: &trace_format::FormatField) -> VarLocation {
    let add = LocOp::Bin(BinOp::Add);
    let field = [LocOp::Record, LocOp::Const(f.offset.into()), add];
    let from = match f.form {
        FieldForm::Value => return VarLocation::Address(field.to_vec()),
        FieldForm::Array(_) => return VarLocation::Value(field.to_vec()),
        FieldForm::FromRecord => 0,
        FieldForm::FromField => f.offset + f.size,
    };
    let offset = [
        load(4),
        LocOp::Const(OFFSET),
        LocOp::Bin(BinOp::And),
        LocOp::Record,
        add,
        LocOp::Const(from.into()),
        add,
    ];
    VarLocation::Value([&field[..], &offset[..]].concat())
}

/// The type of a field's value; `None` for types that the kernel's type information lacks.
fn field_type(
    f: &trace_format::FormatField,
    type_by_name: impl Fn(&str) -> Option<CTypeId>,
) -> Option<CTy> {
    let base = f.ty.trim_end_matches(['*', ' ']);
    let pointers = f.ty.matches('*').count();
    let words = base
        .split(' ')
        .filter(|w| !matches!(*w, "const" | "volatile"));
    let base = words.collect::<Vec<&str>>().join(" ");
    let integer = |size: u32| {
        let size = u8::try_from(size).ok()?;
        matches!(size, 1 | 2 | 4 | 8).then_some(CTy::int(size, f.signed))
    };
    let named = || match &*base {
        "char" | "signed char" | "unsigned char" => Some(CTy {
            base: CBase::Int {
                size: 1,
                signed: true,
                char: true,
            },
            ptrs: 0,
        }),
        // A pointer to nothing known is shown as a number.
        "void" => None,
        base => type_by_name(base).map(CTy::id),
    };
    let tagged = ["struct ", "union ", "enum "]
        .iter()
        .any(|t| base.starts_with(t));
    let element = match f.form {
        // The sign of a number is the file's.
        FieldForm::Value if pointers == 0 && !tagged => return integer(f.size),
        FieldForm::Value if pointers == 0 => return named().or_else(|| integer(f.size)),
        FieldForm::Value => match named() {
            Some(ty) => ty,
            None => return integer(f.size),
        },
        _ if pointers > 0 => CTy::int(8, false),
        FieldForm::Array(count) => {
            let size = f.size.checked_div(count);
            named().or_else(|| integer(size?))?
        }
        FieldForm::FromRecord | FieldForm::FromField => named().unwrap_or(CTy::int(1, false)),
    };
    let levels = if f.form == FieldForm::Value {
        pointers
    } else {
        1
    };
    Some((0..levels).fold(element, |ty, _| ty.pointer()))
}

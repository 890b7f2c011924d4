//! Parses records of the ring buffer: see [`spile_layout::RingRecord`]. A record that does not
//! match the layout is an error, never a panic. It would be a bug of the generated code; the
//! session continues and reports it.

use spile_ir::{HandlerId, Ty};
use spile_layout::{RecordKind, RecordShape};

/// A value in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number.
    Long(i64),
    /// A string without its NUL.
    Str(&'a [u8]),
}

impl FieldValue<'_> {
    /// A number without its sign; `None` for a string.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            FieldValue::Long(n) => Some(n.cast_unsigned()),
            FieldValue::Str(_) => None,
        }
    }
}

/// One output record.
#[derive(Debug, PartialEq, Eq)]
pub struct OutputRecord<'a> {
    /// Index into `Layout::records`.
    pub shape: usize,
    /// The fields, with the types of the shape.
    pub fields: Vec<FieldValue<'a>>,
    /// The words behind the fields.
    pub words: Vec<u64>,
}

/// The record does not match the layout.
#[derive(Debug, PartialEq, Eq)]
pub struct MalformedRecord;

/// The output records of one ring-buffer record, in order.
#[derive(Debug)]
pub struct OutputRecordIter<'a, 's> {
    rest: &'a [u8],
    shapes: &'s [RecordShape],
}

/// Parses the header: returns the handler and its output records.
pub fn open<'a, 's>(
    record: &'a [u8],
    shapes: &'s [RecordShape],
) -> Result<(HandlerId, OutputRecordIter<'a, 's>), MalformedRecord> {
    let header = record.first_chunk::<8>().ok_or(MalformedRecord)?;
    let [h0, h1, h2, h3, u0, u1, u2, u3] = *header;
    let used = u32::from_ne_bytes([u0, u1, u2, u3]) as usize;
    let rest = record.get(8..used).ok_or(MalformedRecord)?;
    Ok((
        HandlerId(u32::from_ne_bytes([h0, h1, h2, h3])),
        OutputRecordIter { rest, shapes },
    ))
}

impl<'a> OutputRecordIter<'a, '_> {
    fn word(&mut self) -> Result<u64, MalformedRecord> {
        let (word, rest) = self.rest.split_first_chunk::<8>().ok_or(MalformedRecord)?;
        self.rest = rest;
        Ok(u64::from_ne_bytes(*word))
    }

    fn string(&mut self) -> Result<&'a [u8], MalformedRecord> {
        let len = usize::try_from(self.word()?).map_err(|_| MalformedRecord)?;
        let padded = len.checked_next_multiple_of(8).ok_or(MalformedRecord)?;
        let (bytes, rest) = self.rest.split_at_checked(padded).ok_or(MalformedRecord)?;
        self.rest = rest;
        Ok(&bytes[..len])
    }

    fn piece(&mut self) -> Result<OutputRecord<'a>, MalformedRecord> {
        let shape = usize::try_from(self.word()?).map_err(|_| MalformedRecord)?;
        let RecordShape { fields, words, .. } = self.shapes.get(shape).ok_or(MalformedRecord)?;
        let fields = fields
            .iter()
            .map(|ty| match ty {
                Ty::Long => self.word().map(|w| FieldValue::Long(w.cast_signed())),
                Ty::Str(_) => self.string().map(FieldValue::Str),
            })
            .collect::<Result<_, _>>()?;
        let words = (0..*words).map(|_| self.word()).collect::<Result<_, _>>()?;
        Ok(OutputRecord {
            shape,
            fields,
            words,
        })
    }
}

impl<'a> OutputRecordIter<'a, '_> {
    /// The first output record if it is for the controller itself: a deferred string, a new file,
    /// or a copy of a stack.
    pub fn next_if_early(&mut self) -> Option<Result<OutputRecord<'a>, MalformedRecord>> {
        let shape = usize::try_from(u64::from_ne_bytes(*self.rest.first_chunk()?)).ok()?;
        let kind = &self.shapes.get(shape)?.what;
        let early = matches!(
            kind,
            RecordKind::Deferred | RecordKind::File | RecordKind::Copy
        );
        if early { self.next() } else { None }
    }
}

/// The process that called `execve` and the time, if this is such a record.
pub fn executed(bytes: &[u8], shapes: &[RecordShape]) -> Option<(u32, u64)> {
    let (_, mut pieces) = open(bytes, shapes).ok()?;
    let piece = pieces.next()?.ok()?;
    match (&shapes.get(piece.shape)?.what, &piece.fields[..]) {
        (RecordKind::Executed, [FieldValue::Long(pid), FieldValue::Long(ns)]) => {
            Some((u32::try_from(*pid).ok()?, ns.cast_unsigned()))
        }
        _ => None,
    }
}

impl<'a> Iterator for OutputRecordIter<'a, '_> {
    type Item = Result<OutputRecord<'a>, MalformedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let piece = self.piece();
        if piece.is_err() {
            self.rest = &[];
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn print() -> RecordKind {
        RecordKind::Print {
            stream: spile_ir::Stream::Out,
            fmt: spile_ir::FormatId(0),
        }
    }

    fn shapes() -> Vec<RecordShape> {
        vec![
            RecordShape {
                what: print(),
                fields: vec![],
                words: 0,
            },
            RecordShape {
                what: print(),
                fields: vec![Ty::Long, Ty::Str(16)],
                words: 0,
            },
            RecordShape {
                what: RecordKind::Hist(spile_ir::Hist::Log),
                fields: vec![],
                words: 2,
            },
        ]
    }

    fn record(used: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = 3u32.to_ne_bytes().to_vec();
        bytes.extend(used.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        bytes
    }

    #[test]
    fn pieces_come_in_order() {
        let abc = u64::from_ne_bytes(*b"abc\0xxxx");
        let bytes = record(8 + 5 * 8, &[1, 42, 3, abc, 0, 77]);
        let shapes = shapes();
        let (handler, pieces) = open(&bytes, &shapes).unwrap();
        assert_eq!(handler, HandlerId(3));
        let pieces: Vec<_> = pieces.map(Result::unwrap).collect();
        assert_eq!(pieces.len(), 2);
        assert_eq!(
            pieces[0].fields,
            [FieldValue::Long(42), FieldValue::Str(b"abc")]
        );
        assert_eq!(
            pieces[1],
            OutputRecord {
                shape: 0,
                fields: vec![],
                words: vec![]
            }
        );
    }

    #[test]
    fn words_come_as_they_are() {
        let bytes = record(8 + 4 * 8, &[2, 7, 8, 0]);
        let shapes = shapes();
        let (_, pieces) = open(&bytes, &shapes).unwrap();
        let pieces: Vec<_> = pieces.map(Result::unwrap).collect();
        assert_eq!((pieces.len(), &pieces[0].words[..]), (2, &[7, 8][..]));
    }

    #[test]
    fn records_that_contradict_their_shape_are_refused() {
        let shapes = shapes();
        assert!(open(b"short", &shapes).is_err());
        assert!(open(&record(800, &[0]), &shapes).is_err());
        for words in [
            &[3][..],
            &[2, 7][..],
            &[1, 1][..],
            &[1, 1, u64::MAX][..],
            &[1, 1, 9, 0][..],
        ] {
            let bytes = record(8 + 8 * words.len() as u32, words);
            let (_, mut pieces) = open(&bytes, &shapes).unwrap();
            assert!(pieces.next().unwrap().is_err());
            assert!(pieces.next().is_none());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let shapes = shapes();
            if let Ok((_, pieces)) = open(&bytes, &shapes) {
                prop_assert!(pieces.count() <= bytes.len());
            }
        }

        #[test]
        fn any_words_are_safe(words in proptest::collection::vec(0u64..20, 0..40)) {
            let shapes = shapes();
            let bytes = record(8 + 8 * words.len() as u32, &words);
            let (_, pieces) = open(&bytes, &shapes).unwrap();
            prop_assert!(pieces.count() <= words.len());
        }
    }
}

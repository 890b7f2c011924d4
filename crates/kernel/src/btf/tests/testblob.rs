//! Builds small BTF blobs for tests.

use crate::btf::BtfKind;

/// A blob under construction; ids are given out from 1.
#[derive(Default)]
pub(crate) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    next: u32,
    /// Offset at which the strings begin.
    first_string: u32,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            types: Vec::new(),
            strings: vec![0],
            next: 1,
            first_string: 0,
        }
    }

    /// A blob that extends one with `types` types and `strings` bytes of strings.
    pub(crate) fn over(types: u32, strings: u32) -> Builder {
        Builder {
            next: types,
            first_string: strings,
            ..Builder::default()
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        at
    }

    /// Adds a record: its header, then words.
    pub(crate) fn raw(
        &mut self,
        kind: BtfKind,
        name: &str,
        flag: bool,
        vlen: usize,
        size: u32,
        rest: &[u32],
    ) -> u32 {
        let name = self.name(name);
        let info = (u32::from(flag) << 31) | ((kind as u32) << 24) | vlen as u32;
        for word in [name, info, size].iter().chain(rest) {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn int(&mut self, name: &str, size: u32, signed: bool) -> u32 {
        self.raw(
            BtfKind::Int,
            name,
            false,
            0,
            size,
            &[(u32::from(signed) << 24) | (size * 8)],
        )
    }

    /// Adds a record that only refers to another: pointer, typedef, const, func, ...
    pub(crate) fn link(&mut self, kind: BtfKind, name: &str, to: u32) -> u32 {
        self.raw(kind, name, false, 0, to, &[])
    }

    /// Members are (name, type, bit offset, bit size).
    pub(crate) fn body(
        &mut self,
        kind: BtfKind,
        name: &str,
        size: u32,
        members: &[(&str, u32, u32, u32)],
    ) -> u32 {
        let flag = members.iter().any(|m| m.3 != 0);
        let rest: Vec<u32> = members
            .iter()
            .flat_map(|&(name, ty, off, bits)| [self.name(name), ty, off | (bits << 24)])
            .collect();
        self.raw(kind, name, flag, members.len(), size, &rest)
    }

    pub(crate) fn proto(&mut self, ret: u32, params: &[(&str, u32)]) -> u32 {
        let rest: Vec<u32> = params
            .iter()
            .flat_map(|&(name, ty)| [self.name(name), ty])
            .collect();
        self.raw(BtfKind::FuncProto, "", false, params.len(), ret, &rest)
    }

    pub(crate) fn enumeration(&mut self, name: &str, signed: bool, values: &[(&str, i32)]) -> u32 {
        let rest: Vec<u32> = values
            .iter()
            .flat_map(|&(name, v)| [self.name(name), v as u32])
            .collect();
        self.raw(BtfKind::Enum, name, signed, values.len(), 4, &rest)
    }

    pub(crate) fn enumeration64(&mut self, name: &str, values: &[(&str, i64)]) -> u32 {
        let rest: Vec<u32> = values
            .iter()
            .flat_map(|&(name, v)| [self.name(name), v as u32, (v >> 32) as u32])
            .collect();
        self.raw(BtfKind::Enum64, name, true, values.len(), 8, &rest)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut out = Vec::new();
        out.extend_from_slice(&0xeb9f_u16.to_ne_bytes());
        out.extend_from_slice(&[1, 0]);
        for word in [24, 0, types, types, strings] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.strings);
        out
    }
}

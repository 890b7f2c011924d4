//! The parser of POSIX extended regular expressions. As in glibc's `regcomp` with `REG_EXTENDED` in
//! the C locale, it decides between errors and ordinary bytes; back references and tests for word
//! boundaries are refused.

use super::error::Error;

/// Largest number in an interval, as in glibc.
const DUP_MAX: u32 = 32767;
/// Maximum nesting of groups.
const MAX_DEPTH: u32 = 200;

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ByteSet(pub [u64; 4]);

impl ByteSet {
    /// Adds a byte.
    pub fn insert(&mut self, b: u8) {
        self.0[usize::from(b >> 6)] |= 1 << (b & 63);
    }

    /// Whether a byte is in it.
    pub fn contains(&self, b: u8) -> bool {
        self.0[usize::from(b >> 6)] >> (b & 63) & 1 == 1
    }

    fn from_fn(mut f: impl FnMut(u8) -> bool) -> ByteSet {
        let mut set = ByteSet::default();
        (0..=255).filter(|b| f(*b)).for_each(|b| set.insert(b));
        set
    }

    fn add(&mut self, other: &ByteSet) {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a |= b;
        }
    }
}

/// A regular expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ast {
    /// The empty expression, which always matches.
    Empty,
    /// One byte of a set.
    Set(ByteSet),
    /// `^`
    Begin,
    /// `$`
    End,
    /// A group and its number, from 1.
    Group(u32, Box<Ast>),
    /// A sequence of at least two parts.
    Concat(Vec<Ast>),
    /// A choice of at least two alternatives.
    Alt(Vec<Ast>),
    /// A repetition.
    Repeat {
        /// The repeated part.
        body: Box<Ast>,
        /// Minimum number of rounds.
        min: u32,
        /// Maximum number of rounds; `None` for no limit.
        max: Option<u32>,
    },
}

impl Ast {
    /// Whether it can match the empty string.
    pub fn nullable(&self) -> bool {
        match self {
            Ast::Empty | Ast::Begin | Ast::End => true,
            Ast::Set(_) => false,
            Ast::Group(_, a) => a.nullable(),
            Ast::Concat(list) => list.iter().all(Ast::nullable),
            Ast::Alt(list) => list.iter().any(Ast::nullable),
            Ast::Repeat { body, min, .. } => *min == 0 || body.nullable(),
        }
    }

    /// Calls `f` with the number of each group in it.
    pub fn for_each_group(&self, f: &mut dyn FnMut(u32)) {
        match self {
            Ast::Group(n, a) => {
                f(*n);
                a.for_each_group(f);
            }
            Ast::Concat(list) | Ast::Alt(list) => list.iter().for_each(|a| a.for_each_group(f)),
            Ast::Repeat { body, .. } => body.for_each_group(f),
            _ => {}
        }
    }
}

/// Parses an expression; the number is that of its groups.
///
/// # Errors
/// The error and its location.
pub fn parse(pattern: &[u8]) -> Result<(Ast, u32), Error> {
    let mut p = Parser {
        text: pattern,
        pos: 0,
        groups: 0,
        depth: 0,
    };
    if let Some(nul) = pattern.iter().position(|b| *b == 0) {
        return Err(Error::new(nul, "a regular expression cannot contain a NUL"));
    }
    let ast = p.alternatives()?;
    Ok((ast, p.groups))
}

struct Parser<'a> {
    text: &'a [u8],
    pos: usize,
    groups: u32,
    depth: u32,
}

type Res<T> = Result<T, Error>;

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.pos).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let b = self.peek()?;
        self.pos += 1;
        Some(b)
    }

    fn take(&mut self, want: u8) -> bool {
        let yes = self.peek() == Some(want);
        self.pos += usize::from(yes);
        yes
    }

    fn alternatives(&mut self) -> Res<Ast> {
        let mut list = vec![self.branch()?];
        while self.take(b'|') {
            list.push(self.branch()?);
        }
        Ok(match list.len() {
            1 => list.remove(0),
            _ => Ast::Alt(list),
        })
    }

    fn branch(&mut self) -> Res<Ast> {
        let mut list = Vec::new();
        loop {
            match self.peek() {
                None | Some(b'|') => break,
                Some(b')') if self.depth > 0 => break,
                _ => list.push(self.repeated()?),
            }
        }
        Ok(match list.len() {
            0 => Ast::Empty,
            1 => list.remove(0),
            _ => Ast::Concat(list),
        })
    }

    fn repeated(&mut self) -> Res<Ast> {
        let mut ast = self.single()?;
        if matches!(ast, Ast::Begin | Ast::End) {
            // Nothing repeats an anchor: the next character is parsed by itself.
            return Ok(ast);
        }
        loop {
            let offset = self.pos;
            let (min, max) = match self.peek() {
                Some(b'*') => (0, None),
                Some(b'+') => (1, None),
                Some(b'?') => (0, Some(1)),
                Some(b'{') => {
                    self.pos += 1;
                    let interval = self.interval(offset)?;
                    ast = repeat(ast, interval);
                    continue;
                }
                _ => return Ok(ast),
            };
            self.pos += 1;
            ast = repeat(ast, (min, max));
        }
    }

    fn number(&mut self) -> Option<u32> {
        let mut n = None;
        while let Some(d @ b'0'..=b'9') = self.peek() {
            self.pos += 1;
            let so_far: u32 = n.unwrap_or(0);
            n = Some((so_far * 10 + u32::from(d - b'0')).min(DUP_MAX + 1));
        }
        n
    }

    /// After `{`.
    fn interval(&mut self, offset: usize) -> Res<(u32, Option<u32>)> {
        let start = self.number();
        if start.is_none() && self.peek() != Some(b',') {
            return Err(Error::new(offset, "`{` begins no interval").help(
                "an interval is `{n}`, `{n,}`, `{n,m}` or `{,m}`; for the brace itself write `\\\\{`",
            ));
        }
        let min = start.unwrap_or(0);
        let max = if self.take(b',') {
            self.number()
        } else {
            Some(min)
        };
        if !self.take(b'}') {
            return Err(Error::new(offset, "this interval has no end").help("`}` ends it"));
        }
        if max.is_some_and(|m| m < min) {
            return Err(Error::new(offset, "this interval ends before it begins"));
        }
        if max.unwrap_or(min) > DUP_MAX {
            let text = format!("an interval goes to {DUP_MAX} at most");
            return Err(Error::new(offset, text));
        }
        Ok((min, max))
    }

    fn single(&mut self) -> Res<Ast> {
        let offset = self.pos;
        let Some(b) = self.next() else {
            return Ok(Ast::Empty);
        };
        Ok(match b {
            b'^' => Ast::Begin,
            b'$' => Ast::End,
            b'.' => Ast::Set(ByteSet::from_fn(|b| b != 0)),
            b'[' => Ast::Set(self.bracket(offset)?),
            b'(' => {
                if self.depth >= MAX_DEPTH {
                    let text = format!("groups nest more than {MAX_DEPTH} deep");
                    return Err(Error::new(offset, text));
                }
                self.depth += 1;
                self.groups += 1;
                let n = self.groups;
                let body = self.alternatives()?;
                if !self.take(b')') {
                    return Err(Error::new(offset, "this group has no end").help("`)` ends it"));
                }
                self.depth -= 1;
                Ast::Group(n, Box::new(body))
            }
            b'*' | b'+' | b'?' | b'{' => {
                let c = char::from(b);
                return Err(Error::new(offset, format!("`{c}` has nothing to repeat"))
                    .help(format!("for the character itself write `\\\\{c}`")));
            }
            b'\\' => self.escape(offset)?,
            b => Ast::Set(ByteSet::from_fn(|x| x == b)),
        })
    }

    fn escape(&mut self, offset: usize) -> Res<Ast> {
        let Some(b) = self.next() else {
            return Err(Error::new(
                offset,
                "a backslash ends this regular expression",
            ));
        };
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let space = |b: u8| class(b"space").is_some_and(|f| f(b));
        Ok(Ast::Set(match b {
            b'1'..=b'9' => {
                return Err(
                    Error::new(offset, "back references are not available").help(
                        "regular expressions are POSIX extended ones without `\\\\1` to `\\\\9`",
                    ),
                );
            }
            b'b' | b'B' | b'<' | b'>' | b'`' | b'\'' => {
                let text = format!("`\\{}` is not available", char::from(b));
                return Err(Error::new(offset, text).help(
                    "the available tests are `^` for the start of the string, `$` for its end",
                ));
            }
            b'w' => ByteSet::from_fn(word),
            b'W' => ByteSet::from_fn(|b| b != 0 && !word(b)),
            b's' => ByteSet::from_fn(space),
            b'S' => ByteSet::from_fn(|b| b != 0 && !space(b)),
            b => ByteSet::from_fn(|x| x == b),
        }))
    }

    /// After `[`.
    fn bracket(&mut self, offset: usize) -> Res<ByteSet> {
        let open = || Error::new(offset, "this bracket has no end").help("`]` ends it");
        let negated = self.take(b'^');
        let mut set = ByteSet::default();
        let mut first = true;
        loop {
            let position = self.pos;
            match self.peek() {
                None => return Err(open()),
                Some(b']') if !first => break,
                Some(b'-') if !first && self.text.get(position + 1).is_some_and(|b| *b != b']') => {
                    return Err(Error::new(position, "`-` stands where no range can begin")
                        .help("the hyphen itself stands first or last in a bracket"));
                }
                _ => {}
            }
            let low = self.element(offset)?;
            first = false;
            let range = self.peek() == Some(b'-')
                && self.text.get(self.pos + 1).is_some_and(|b| *b != b']');
            if !range {
                match low {
                    Element::Byte(b) => set.insert(b),
                    Element::Class(class) => set.add(&class),
                }
                continue;
            }
            self.pos += 1;
            match (low, self.element(offset)?) {
                (Element::Byte(a), Element::Byte(b)) if a <= b => {
                    (a..=b).for_each(|b| set.insert(b));
                }
                (Element::Byte(_), Element::Byte(_)) => {
                    return Err(Error::new(position, "this range ends before it begins"));
                }
                _ => return Err(Error::new(position, "a class cannot be the end of a range")),
            }
        }
        self.pos += 1;
        Ok(match negated {
            true => ByteSet::from_fn(|b| b != 0 && !set.contains(b)),
            false => set,
        })
    }

    /// One byte, or a class, of a bracket expression.
    fn element(&mut self, offset: usize) -> Res<Element> {
        let position = self.pos;
        let open = || Error::new(offset, "this bracket has no end").help("`]` ends it");
        let b = self.next().ok_or_else(open)?;
        let kind = match self.peek() {
            Some(k @ (b':' | b'=' | b'.')) if b == b'[' => k,
            _ => return Ok(Element::Byte(b)),
        };
        self.pos += 1;
        let rest = &self.text[self.pos..];
        let end = rest.windows(2).position(|w| w == [kind, b']']);
        let Some(end) = end else {
            return Err(open());
        };
        let name = &rest[..end];
        self.pos += end + 2;
        if kind == b':' {
            let Some(f) = class(name) else {
                let text = format!("there is no class `[:{}:]`", String::from_utf8_lossy(name));
                return Err(Error::new(position, text).help(
                    "alnum alpha blank cntrl digit graph lower print punct space upper xdigit",
                ));
            };
            return Ok(Element::Class(ByteSet::from_fn(f)));
        }
        match name {
            [b] => Ok(match kind {
                b'=' => Element::Class(ByteSet::from_fn(|x| x == *b)),
                _ => Element::Byte(*b),
            }),
            _ => Err(Error::new(position, "a collating element is one byte here")),
        }
    }
}

enum Element {
    Byte(u8),
    Class(ByteSet),
}

/// A repetition; the empty expression for zero rounds.
fn repeat(body: Ast, (min, max): (u32, Option<u32>)) -> Ast {
    if max == Some(0) {
        return Ast::Empty;
    }
    Ast::Repeat {
        body: Box::new(body),
        min,
        max,
    }
}

/// A class of the C locale.
fn class(name: &[u8]) -> Option<fn(u8) -> bool> {
    Some(match name {
        b"alnum" => |b| b.is_ascii_alphanumeric(),
        b"alpha" => |b| b.is_ascii_alphabetic(),
        b"blank" => |b| b == b' ' || b == b'\t',
        b"cntrl" => |b| b.is_ascii_control(),
        b"digit" => |b| b.is_ascii_digit(),
        b"graph" => |b| b.is_ascii_graphic(),
        b"lower" => |b| b.is_ascii_lowercase(),
        b"print" => |b| matches!(b, b' '..=b'~'),
        b"punct" => |b| b.is_ascii_punctuation(),
        b"space" => |b| matches!(b, b' ' | 9..=13),
        b"upper" => |b| b.is_ascii_uppercase(),
        b"xdigit" => |b| b.is_ascii_hexdigit(),
        _ => return None,
    })
}

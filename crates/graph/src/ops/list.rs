//! A list of operators, as a value. Networks hold operators by number; whoever reads one is handed the list that says what the
//! numbers mean, and so is whoever imports a model, for what ONNX's operators become.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::import::Build;
use crate::ops::op::Op;
use crate::ops::operator::Numbered;

/// One kind of operator, as readers and imports know it.
#[derive(Clone, Copy)]
pub struct OperatorKind {
    number: u32,
    /// Its type's name, for errors.
    name: &'static str,
    read: fn(&mut dyn erased_serde::Deserializer<'_>) -> erased_serde::Result<Op>,
    /// Which of ONNX's operators are made of it.
    onnx: &'static [(&'static str, Build)],
}

impl OperatorKind {
    /// The kind of operator that `T` is.
    pub fn of<T: Numbered>() -> Self {
        let name = std::any::type_name::<T>();
        let read =
            |from: &mut dyn erased_serde::Deserializer<'_>| erased_serde::deserialize::<T>(from).map(Op::new);
        Self { number: T::NUMBER, name, read, onnx: &[] }
    }

    /// The same, with the ONNX operators that it, or what is mostly made of it, comes from: each with its builder. One of a domain that
    /// is not ONNX's own is called `domain:Operator`.
    #[must_use]
    pub fn from_onnx(self, onnx: &'static [(&'static str, Build)]) -> Self {
        Self { onnx, ..self }
    }
}

impl fmt::Debug for OperatorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.name)
    }
}

/// Operators that a program knows, as a value: a part of its kit. [`Operators::standard`] are this project's.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    kinds: Vec<OperatorKind>,
    /// What comes from ONNX's operators that are made of several kinds, or of none.
    onnx: Vec<&'static [(&'static str, Build)]>,
}

impl Operators {
    /// The same list with `more` operators.
    ///
    /// # Panics
    /// When two have the same number: files and messages could not tell them apart.
    #[must_use]
    pub fn with(mut self, more: impl IntoIterator<Item = OperatorKind>) -> Self {
        for new in more {
            let taken = self.kinds.iter().find(|old| old.number == new.number);
            assert!(taken.is_none(), "operators {taken:?} and {new:?} have the same number");
            self.kinds.push(new);
        }
        self
    }

    /// The same list, with more of ONNX's operators that become some of its own, named as in [`OperatorKind::from_onnx`].
    #[must_use]
    pub fn from_onnx(mut self, onnx: &'static [(&'static str, Build)]) -> Self {
        self.onnx.push(onnx);
        self
    }

    /// What an ONNX operator becomes; of several that were given, the last one's.
    pub(crate) fn onnx(&self, name: &str) -> Option<Build> {
        let tables = self.kinds.iter().map(|kind| kind.onnx).chain(self.onnx.iter().copied()).rev();
        tables.flatten().find(|(own, _)| *own == name).map(|(_, build)| *build)
    }
}

/// What readers share: the list, and the number that it did not have. (Formats without words drop an error's text.)
pub(crate) struct Lookup<'a> {
    operators: &'a Operators,
    pub(crate) unknown: Cell<Option<u32>>,
}

impl Operators {
    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup { operators: self, unknown: Cell::new(None) }
    }
}

/// Reads an operation: a number, and then what its kind reads.
pub(crate) struct ReadOp<'a>(pub(crate) &'a Lookup<'a>);

impl<'de> DeserializeSeed<'de> for ReadOp<'_> {
    type Value = Op;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Op, D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de> Visitor<'de> for ReadOp<'_> {
    type Value = Op;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an operator's number and its parameters")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Op, A::Error> {
        let missing = || Error::invalid_length(0, &self);
        let number: u32 = seq.next_element()?.ok_or_else(missing)?;
        let Some(kind) = self.0.operators.kinds.iter().find(|kind| kind.number == number) else {
            self.0.unknown.set(Some(number));
            return Err(Error::custom("an unknown operator"));
        };
        seq.next_element_seed(ReadParameters(kind))?.ok_or_else(missing)
    }
}

/// Reads the parameters of one kind.
struct ReadParameters<'a>(&'a OperatorKind);

impl<'de> DeserializeSeed<'de> for ReadParameters<'_> {
    type Value = Op;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Op, D::Error> {
        (self.0.read)(&mut <dyn erased_serde::Deserializer<'_>>::erase(deserializer)).map_err(Error::custom)
    }
}

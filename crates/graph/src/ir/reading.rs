//! Networks and models from files and messages: their fields in order, their operations by a list of operators.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::ir::network::{Model, Network, Node};
use crate::ops::Operators;
use crate::ops::list::{Lookup, ReadOp};

/// What has operations in it, and so is read with a list of [`Operators`].
pub trait WithOperations: Sized {
    /// How many fields it has.
    const FIELDS: usize;

    /// Reads the fields, in the order in which they are written.
    ///
    /// # Errors
    /// What the format says.
    fn fields<'de, A: SeqAccess<'de>>(from: &mut Fields<'_, A>) -> Result<Self, A::Error>;
}

/// How a `T` is read.
struct Reading<'a, T> {
    lookup: &'a Lookup<'a>,
    what: PhantomData<T>,
}

/// Why bytes are no network or model that this program could run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes are something else, or damaged.
    #[error(transparent)]
    Malformed(#[from] postcard::Error),
    /// Something stands behind it.
    #[error("{0} bytes too many")]
    TooLong(usize),
    /// It has an operator that the list lacks.
    #[error(
        "no operator here has the number {0}: it is of a program with more of them, or of a newer version"
    )]
    UnknownOperator(u32),
}

impl Operators {
    /// Reads a network, or a model, of these operators from bytes that are nothing else. Whether it is sound is another question:
    /// [`Network::validate`].
    ///
    /// # Errors
    /// When the bytes are none, or name an operator that is not in the list.
    pub fn decode<T: WithOperations>(&self, bytes: &[u8]) -> Result<T, ReadError> {
        let lookup = self.lookup();
        let mut from = postcard::Deserializer::from_bytes(bytes);
        let read = reading(&lookup).deserialize(&mut from);
        let malformed =
            |why| lookup.unknown.get().map_or(ReadError::Malformed(why), ReadError::UnknownOperator);
        let read = read.map_err(malformed)?;
        match from.finalize()?.len() {
            0 => Ok(read),
            more => Err(ReadError::TooLong(more)),
        }
    }
}

fn reading<'a, T: WithOperations>(lookup: &'a Lookup<'a>) -> Reading<'a, T> {
    Reading { lookup, what: PhantomData }
}

impl<'de, T: WithOperations> DeserializeSeed<'de> for Reading<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_tuple(T::FIELDS, self)
    }
}

impl<'de, T: WithOperations> Visitor<'de> for Reading<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} fields", T::FIELDS)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::fields(&mut Fields { lookup: self.lookup, seq })
    }
}

/// Fields that are still to be read.
pub struct Fields<'a, A> {
    lookup: &'a Lookup<'a>,
    seq: A,
}

impl<'de, A: SeqAccess<'de>> Fields<'_, A> {
    /// The next one.
    ///
    /// # Errors
    /// When it is not there, or is something else.
    pub(crate) fn plain<T: serde::Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        self.seeded(PhantomData)
    }

    /// The next one, which has operations in it.
    ///
    /// # Errors
    /// As for [`plain`](Self::plain); when it names an operator that is not in the list.
    pub(crate) fn with_operations<T: WithOperations>(&mut self) -> Result<T, A::Error> {
        self.seeded(reading(self.lookup))
    }

    fn seeded<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.seq.next_element_seed(seed)?.ok_or_else(|| Error::custom("a field is missing"))
    }
}

/// Any number of nodes.
struct Nodes<'a>(&'a Lookup<'a>);

impl<'de> DeserializeSeed<'de> for Nodes<'_> {
    type Value = Vec<Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Node>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Nodes<'_> {
    type Value = Vec<Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nodes")
    }

    /// Grows with what is read: the number that a message claims is not believed.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Node>, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = seq.next_element_seed(reading(self.0))? {
            nodes.push(node);
        }
        Ok(nodes)
    }
}

impl WithOperations for Node {
    const FIELDS: usize = 4;

    fn fields<'de, A: SeqAccess<'de>>(from: &mut Fields<'_, A>) -> Result<Self, A::Error> {
        let (name, op) = (from.plain()?, from.seeded(ReadOp(from.lookup))?);
        Ok(Self { name, op, inputs: from.plain()?, shape: from.plain()? })
    }
}

impl WithOperations for Network {
    const FIELDS: usize = 8;

    fn fields<'de, A: SeqAccess<'de>>(from: &mut Fields<'_, A>) -> Result<Self, A::Error> {
        Ok(Self {
            name: from.plain()?,
            activation_bits: from.plain()?,
            guard_bits: from.plain()?,
            noise_bits: from.plain()?,
            weight_bits: from.plain()?,
            nodes: from.seeded(Nodes(from.lookup))?,
            input: from.plain()?,
            output: from.plain()?,
        })
    }
}

impl WithOperations for Model {
    const FIELDS: usize = 4;

    fn fields<'de, A: SeqAccess<'de>>(from: &mut Fields<'_, A>) -> Result<Self, A::Error> {
        Ok(Self {
            network: from.with_operations()?,
            weights: from.plain()?,
            scales: from.plain()?,
            leverage: from.plain()?,
        })
    }
}

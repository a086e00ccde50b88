//! The tensors of a batch as every kind of batch has them: name, type, shape and place.

use bytemuck::Pod;

/// The type of a tensor's elements, named as NumPy names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are NumPy's")]
pub enum Dtype {
    Int8,
    UInt8,
    UInt16,
    Int32,
    UInt32,
    Int64,
    Float16,
    Float32,
}

impl Dtype {
    /// Returns the number of bytes of an element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Int8 | Self::UInt8 => 1,
            Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 => 8,
        }
    }

    /// Returns NumPy's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::Int32 => "int32",
            Self::UInt32 => "uint32",
            Self::Int64 => "int64",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
        }
    }
}

/// One tensor of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: &'static str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape; the first axis is the sequence, except in tensors of the batch as a whole.
    pub shape: Vec<usize>,
    /// Its offset in the batch's buffer, a multiple of 64.
    pub offset: usize,
}

impl Tensor {
    /// Returns the number of bytes of the tensor.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }
}

/// Returns the elements of the tensor `name` among those of a batch; none when it has no such tensor.
///
/// # Panics
/// When `T` and the tensor's elements differ in size.
pub(crate) fn elements<'a, T: Pod>(
    mut tensors: impl Iterator<Item = (&'a Tensor, &'a [u8])>,
    name: &str,
) -> Option<&'a [T]> {
    let (tensor, bytes) = tensors.find(|(tensor, _)| tensor.name == name)?;
    assert_eq!(size_of::<T>(), tensor.dtype.bytes(), "{name} is of {:?}", tensor.dtype);
    Some(bytemuck::cast_slice(bytes))
}

/// A batch: named tensors in buffers that it owns.
pub trait Tensors: Send + Sync {
    /// Returns every tensor with its bytes.
    fn all(&self) -> Box<dyn Iterator<Item = (&Tensor, &[u8])> + '_>;
}

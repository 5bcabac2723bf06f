//! How messages are read and written: as protobuf, from small buffers.
//!
//! A stream keeps its buffers for as long as it is open, and tens of thousands are open on which nothing comes. Most
//! messages are smaller than this; a larger one makes the buffer grow to what it takes.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{self, BufferSettings};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// At first, in bytes.
const BUFFER: usize = 1024;
/// Messages that are there at once are sent together up to about so many bytes.
const TOGETHER: usize = 32 * 1024;

/// What the generated services use.
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, TOGETHER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, TOGETHER))
    }
}

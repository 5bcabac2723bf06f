//! How messages are read and written: as protobuf, from small buffers.
//!
//! A stream keeps its buffers for as long as it is open, and tens of thousands are open on which nothing comes. Most
//! messages are smaller than this; a larger one makes the buffer grow to what it takes.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{self, BufferSettings, EncodeBuf},
};
use tonic_prost::{ProstCodec, ProstDecoder};

/// At first, in bytes.
const BUFFER: usize = 1024;
/// Messages that are there at once are sent together up to about so many bytes.
const TOGETHER: usize = 32 * 1024;

/// Writes messages.
pub(crate) struct Encoder<T>(PhantomData<T>);

impl<T: Message> codec::Encoder for Encoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // At once, in place of a buffer that doubles, and is copied, until it is long enough.
        buf.reserve(item.encoded_len());
        item.encode_raw(buf);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, TOGETHER)
    }
}

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
    type Encoder = Encoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        Encoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, TOGETHER))
    }
}

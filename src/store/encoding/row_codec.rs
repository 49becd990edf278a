//! The bytes of consumers' rows: keys and values are the encodings of their parts, one after the
//! other. Numbers are big-endian, so that byte order is numeric order.

use orrery_ledger::domain::{ContractId, EventId, Hash32, LedgerSeq, ProgramId};

use super::records::TransactionPosition;

/// A key or a value of a row, or a part of one.
pub trait RowCodec: Sized {
    /// Appends the encoded form.
    fn write(&self, to: &mut Vec<u8>);

    /// Takes the encoded form from the beginning of `bytes`; `None` when they do not begin with
    /// one. A part of variable length takes all of them.
    fn read(bytes: &mut &[u8]) -> Option<Self>;

    /// Returns the encoded form.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        self.write(&mut bytes);
        bytes
    }

    /// Decodes bytes; `None` when they are anything but one encoded form.
    fn decode(mut bytes: &[u8]) -> Option<Self> {
        Self::read(&mut bytes).filter(|_| bytes.is_empty())
    }
}

/// First part of keys `K`: the rows under it are adjacent.
pub trait KeyPrefix<K>: RowCodec {}

impl<A: RowCodec, B: RowCodec> KeyPrefix<(A, B)> for A {}

/// Implements [`RowCodec`] for a struct, as its fields in the given order, or for an enum with a
/// constant `ALL`, as one byte with the index of the variant, which must equal its discriminant.
/// `RowCodec` must be in scope.
#[macro_export]
macro_rules! row_codec {
    (enum $type:ty) => {
        impl RowCodec for $type {
            fn write(&self, to: &mut Vec<u8>) {
                to.push(*self as u8);
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                Self::ALL.get(usize::from(u8::read(bytes)?)).copied()
            }
        }
    };
    ($type:ty { $($field:tt),+ }) => {
        impl RowCodec for $type {
            fn write(&self, to: &mut Vec<u8>) {
                $(RowCodec::write(&self.$field, to);)+
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: RowCodec::read(bytes)?),+ })
            }
        }
    };
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl RowCodec for $number {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_be_bytes());
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                RowCodec::read(bytes).map(Self::from_be_bytes)
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64);
row_codec!(ContractId { 0 });
row_codec!(EventId { 0 });
row_codec!(Hash32 { 0 });
row_codec!(LedgerSeq { 0 });
row_codec!(ProgramId { 0 });

/// One byte, 0 or 1.
impl RowCodec for bool {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        u8::read(bytes).map(|byte| byte != 0)
    }
}

impl<const N: usize> RowCodec for [u8; N] {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        bytes.split_off(..N)?.try_into().ok()
    }
}

impl RowCodec for TransactionPosition {
    fn write(&self, to: &mut Vec<u8>) {
        self.to_bytes().write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Self::from_bytes(&<[u8; 7]>::read(bytes)?)
    }
}

/// All of the bytes that follow.
impl RowCodec for Vec<u8> {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(std::mem::take(bytes).to_vec())
    }
}

/// No bytes.
impl RowCodec for () {
    fn write(&self, _: &mut Vec<u8>) {}

    fn read(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl<A: RowCodec, B: RowCodec> RowCodec for (A, B) {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::read(bytes)?, B::read(bytes)?))
    }
}

/// One constant byte, which tells apart the kinds of keys that share a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark<const BYTE: u8>;

impl<const BYTE: u8> RowCodec for Mark<BYTE> {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(BYTE);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        (u8::read(bytes)? == BYTE).then_some(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Side {
        Left,
        Right,
    }

    impl Side {
        const ALL: [Self; 2] = [Self::Left, Self::Right];
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Key {
        ledger: LedgerSeq,
        side: Side,
        rest: ((Mark<b'k'>, u64), Vec<u8>),
    }

    row_codec!(enum Side);
    row_codec!(Key { ledger, side, rest });

    #[test]
    fn parts_are_encoded_one_after_the_other_and_damaged_bytes_are_refused() {
        let key = |ledger, side, number, rest: &[u8]| Key {
            ledger: LedgerSeq(ledger),
            side,
            rest: ((Mark, number), rest.to_vec()),
        };
        let one = key(258, Side::Right, 7, &[9, 8]);
        let bytes = [0, 0, 1, 2, 1, b'k', 0, 0, 0, 0, 0, 0, 0, 7, 9, 8];
        assert_eq!(one.encode(), bytes);
        assert_eq!(Key::decode(&bytes), Some(one));
        for length in 0..14 {
            assert_eq!(Key::decode(&bytes[..length]), None);
        }
        for (at, damaged) in [(4, 2), (5, b'l')] {
            let mut bytes = bytes;
            bytes[at] = damaged;
            assert_eq!(Key::decode(&bytes), None);
        }
        assert_eq!((<()>::decode(&[]), <()>::decode(&[0])), (Some(()), None));
        assert_eq!(<(u8, [u8; 2])>::decode(&[1, 2, 3, 4]), None);
        let ordered = [
            key(1, Side::Left, u64::MAX, &[9]),
            key(1, Side::Right, 255, &[]),
            key(1, Side::Right, 256, &[]),
            key(256, Side::Left, 0, &[]),
        ];
        assert!(ordered.map(|key| key.encode()).is_sorted());
    }
}

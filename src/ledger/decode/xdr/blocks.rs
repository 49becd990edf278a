//! The building blocks of the schema, and its notation:
//!
//! ```text
//! schema! {
//!     typedef Name { Type }
//!     struct Name { field: Type, field: Type }
//!     enum Name { MEMBER = 0, MEMBER = 1 }
//!     union Name(Enum) { MEMBER => Type, MEMBER | MEMBER => Type, _ => Void }
//!     union Name(Int32) { 0 => Void, 1 => Type }
//! }
//! ```
//!
//! The types have no values and only describe a shape.

use std::marker::PhantomData;

use super::{Cursor, Depth, XdrError};

/// A type of the schema.
pub trait Xdr {
    /// Shape of the type, if all its values have the same size and any bytes of that size are a
    /// valid value.
    const FIXED: Option<Fixed> = None;

    /// Skips one value. `depth` is the number of levels that may still be nested at this point, the
    /// value's own included.
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError>;
}

/// Shape of a type whose values can be skipped without reading them.
#[derive(Clone, Copy)]
pub struct Fixed {
    /// Size of a value, in bytes.
    size: usize,
    /// Levels of nesting in a value, including its own.
    levels: u32,
}

impl Fixed {
    /// Returns the shape of a value that encloses these fields in one further level; `None` unless
    /// all of them are fixed.
    pub const fn enclosing(fields: &[Option<Self>]) -> Option<Self> {
        let mut shape = Self { size: 0, levels: 0 };
        let mut i = 0;
        while i < fields.len() {
            let Some(field) = fields[i] else { return None };
            shape.size += field.size;
            if field.levels > shape.levels {
                shape.levels = field.levels;
            }
            i += 1;
        }
        shape.levels += 1;
        Some(shape)
    }

    /// Skips `count` consecutive values.
    #[inline(always)]
    pub fn skip(self, cursor: &mut Cursor<'_>, depth: Depth, count: usize) -> Result<(), XdrError> {
        if count == 0 {
            return Ok(());
        }
        depth.allow(self.levels)?;
        cursor.take(self.size.checked_mul(count).ok_or(XdrError::UnexpectedEnd)?).map(|_| ())
    }
}

/// Declares types that consist of a fixed number of arbitrary bytes.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $size:literal;)*) => {$(
        $(#[$doc])*
        pub enum $name {}

        impl Xdr for $name {
            const FIXED: Option<Fixed> = Some(Fixed { size: $size, levels: 1 });

            #[inline(always)]
            fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
                depth.enter()?;
                cursor.take($size).map(|_| ())
            }
        }
    )*};
}

numbers! {
    /// `int`
    Int32 = 4;
    /// `unsigned int`
    Uint32 = 4;
    /// `hyper`
    Int64 = 8;
    /// `unsigned hyper`
    Uint64 = 8;
}

/// `void`
pub enum Void {}

impl Xdr for Void {
    #[inline(always)]
    fn skip(_: &mut Cursor<'_>, _: Depth) -> Result<(), XdrError> {
        Ok(())
    }
}

/// `bool`
pub enum Bool {}

impl Xdr for Bool {
    #[inline(always)]
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        depth.allow(2)?;
        cursor.flag().map(|_| ())
    }
}

/// `opaque name[N]`; in this schema, `N` is always a multiple of four, so there is no padding.
pub enum Opaque<const N: usize> {}

impl<const N: usize> Xdr for Opaque<N> {
    const FIXED: Option<Fixed> = {
        assert!(N.is_multiple_of(4));
        Some(Fixed { size: N, levels: 1 })
    };

    #[inline(always)]
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        depth.enter()?;
        cursor.array::<N>().map(|_| ())
    }
}

/// `opaque name<MAX>`
pub enum VarOpaque<const MAX: u32 = { u32::MAX }> {}

impl<const MAX: u32> Xdr for VarOpaque<MAX> {
    #[inline]
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        depth.allow(2)?;
        let length = cursor.length(MAX)? as usize;
        cursor.take(length)?;
        cursor.padding(length)
    }
}

/// `string name<MAX>`; on this network, it may contain any bytes.
pub type Text<const MAX: u32 = { u32::MAX }> = VarOpaque<MAX>;

/// `Type name[N]`
pub struct Array<T, const N: usize>(PhantomData<T>);

impl<T: Xdr, const N: usize> Xdr for Array<T, N> {
    const FIXED: Option<Fixed> = match T::FIXED {
        Some(Fixed { size, levels }) => Some(Fixed { size: size * N, levels: levels + 1 }),
        None => None,
    };

    #[inline]
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        skip_all::<T>(cursor, depth.enter()?, N)
    }
}

/// `Type name<MAX>`
pub struct VarArray<T, const MAX: u32 = { u32::MAX }>(PhantomData<T>);

impl<T: Xdr, const MAX: u32> Xdr for VarArray<T, MAX> {
    #[inline]
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        depth.allow(1)?;
        let length = cursor.length(MAX)?;
        skip_all::<T>(cursor, depth, length as usize)
    }
}

#[inline(always)]
fn skip_all<T: Xdr>(cursor: &mut Cursor<'_>, depth: Depth, count: usize) -> Result<(), XdrError> {
    if let Some(fixed) = T::FIXED {
        return fixed.skip(cursor, depth, count);
    }
    for _ in 0..count {
        T::skip(cursor, depth)?;
    }
    Ok(())
}

/// `Type *name`
pub struct Optional<T>(PhantomData<T>);

impl<T: Xdr> Xdr for Optional<T> {
    #[inline]
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        depth.allow(1)?;
        if cursor.flag()? { T::skip(cursor, depth) } else { Ok(()) }
    }
}

/// A level of nesting that `stellar-xdr` counts for the `Box` around a recursive type.
pub struct Boxed<T>(PhantomData<T>);

impl<T: Xdr> Xdr for Boxed<T> {
    #[inline]
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
        T::skip(cursor, depth.enter()?)
    }
}

/// Walks a variable-length array and calls `walk` for each element.
#[inline]
pub fn each<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    mut walk: impl FnMut(&mut Cursor<'a>, Depth) -> Result<(), XdrError>,
) -> Result<(), XdrError> {
    let depth = depth.enter()?;
    for _ in 0..cursor.u32()? {
        walk(cursor, depth)?;
    }
    Ok(())
}

macro_rules! schema {
    ($($kind:tt $name:ident $(($switch:ident))? { $($body:tt)* })*) => {
        $(define! { $kind $name $(($switch))? { $($body)* } })*
    };
}

macro_rules! define {
    (typedef $name:ident { $type:ty }) => {
        define! { struct $name { inner: $type } }
    };
    (struct $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        pub enum $name {}

        impl Xdr for $name {
            const FIXED: Option<Fixed> = Fixed::enclosing(&[$(<$type as Xdr>::FIXED),*]);

            #[inline]
            fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
                if let Some(fixed) = Self::FIXED {
                    return fixed.skip(cursor, depth, 1);
                }
                let depth = depth.enter()?;
                $(<$type as Xdr>::skip(cursor, depth)?;)*
                Ok(())
            }
        }
    };
    (enum $name:ident { $($member:ident = $value:literal),* $(,)? }) => {
        pub enum $name {}

        impl $name {
            $(pub const $member: i32 = $value;)*

            /// The value, which is one of the members.
            #[inline(always)]
            pub fn read(cursor: &mut Cursor<'_>, depth: Depth) -> Result<i32, XdrError> {
                depth.allow(2)?;
                let value = cursor.i32()?;
                let known = matches!(value, $(Self::$member)|*);
                if known { Ok(value) } else { Err(XdrError::UnknownValue) }
            }
        }

        impl Xdr for $name {
            #[inline(always)]
            fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
                Self::read(cursor, depth).map(|_| ())
            }
        }
    };
    (union $name:ident (Int32) { $($case:literal => $arm:ty),* $(,)? }) => {
        define! { @union $name cursor depth { cursor.i32()? } {
            $($case => $arm,)*
        } { _ => Err(XdrError::UnknownValue) } }
    };
    (union $name:ident ($switch:ident) { $($($case:ident)|+ => $arm:ty),* $(,)? }) => {
        define! { @union $name cursor depth { $switch::read(cursor, depth)? } {
            $($($switch::$case)|+ => $arm,)*
        } { _ => Err(XdrError::UnknownValue) } }
    };
    (union $name:ident ($switch:ident) {
        $($($case:ident)|+ => $arm:ty,)* _ => $rest:ty $(,)?
    }) => {
        define! { @union $name cursor depth { $switch::read(cursor, depth)? } {
            $($($switch::$case)|+ => $arm,)*
        } { _ => <$rest as Xdr>::skip(cursor, depth) } }
    };
    (@union $name:ident $cursor:ident $depth:ident { $switch:expr } {
        $($case:pat => $arm:ty,)*
    } { _ => $otherwise:expr }) => {
        pub enum $name {}

        impl Xdr for $name {
            #[inline]
            fn skip($cursor: &mut Cursor<'_>, $depth: Depth) -> Result<(), XdrError> {
                let $depth = $depth.enter()?;
                $depth.allow(1)?;
                match $switch {
                    $($case => <$arm as Xdr>::skip($cursor, $depth),)*
                    #[allow(unreachable_patterns)]
                    _ => $otherwise,
                }
            }
        }
    };
}

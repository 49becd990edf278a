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
//! visited! {
//!     struct Name { field: PartName }
//!     part PartName { Type }
//! }
//! ```
//!
//! The types have no values and only describe a shape. Values of a type in `schema!` are always
//! skipped as a whole; those of a type in `visited!` can hold parts, of which a visitor is told. A
//! part adds no level of nesting.

use std::marker::PhantomData;

use super::{Cursor, Depth, Visit, XdrError};

/// A type of the schema.
pub trait Xdr {
    /// Shape of the type, if all its values have the same size, any bytes of that size are a valid
    /// value, and they hold no parts.
    const FIXED: Option<Fixed> = None;

    /// Skips one value. `depth` is the number of levels that may still be nested at this point, the
    /// value's own included.
    fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError>;

    /// Skips one value and tells the visitor about the parts in it, if the type holds parts.
    #[inline(always)]
    fn walk<'a, V: Visit<'a>>(
        cursor: &mut Cursor<'a>,
        depth: Depth,
        _visitor: &mut V,
    ) -> Result<(), XdrError> {
        Self::skip(cursor, depth)
    }

    /// Skips one value and returns its bytes.
    #[inline]
    fn bytes<'a>(cursor: &mut Cursor<'a>, depth: Depth) -> Result<&'a [u8], XdrError> {
        let start = *cursor;
        Self::skip(cursor, depth)?;
        Ok(start.up_to(cursor))
    }
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

impl Int32 {
    /// The value.
    #[inline(always)]
    pub fn read(cursor: &mut Cursor<'_>, depth: Depth) -> Result<i32, XdrError> {
        depth.allow(1)?;
        cursor.i32()
    }
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
        each(cursor, depth.enter()?, N, T::FIXED, T::skip)
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
        each(cursor, depth, length as usize, T::FIXED, T::skip)
    }

    #[inline]
    fn walk<'a, V: Visit<'a>>(
        cursor: &mut Cursor<'a>,
        depth: Depth,
        visitor: &mut V,
    ) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        depth.allow(1)?;
        let length = cursor.length(MAX)?;
        each(cursor, depth, length as usize, T::FIXED, |cursor, depth| {
            T::walk(cursor, depth, visitor)
        })
    }
}

/// Skips `count` consecutive values of one shape, or calls `one` for each of them.
#[inline(always)]
fn each<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    count: usize,
    shape: Option<Fixed>,
    mut one: impl FnMut(&mut Cursor<'a>, Depth) -> Result<(), XdrError>,
) -> Result<(), XdrError> {
    if let Some(fixed) = shape {
        return fixed.skip(cursor, depth, count);
    }
    for _ in 0..count {
        one(cursor, depth)?;
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

    #[inline]
    fn walk<'a, V: Visit<'a>>(
        cursor: &mut Cursor<'a>,
        depth: Depth,
        visitor: &mut V,
    ) -> Result<(), XdrError> {
        let depth = depth.enter()?;
        depth.allow(1)?;
        if cursor.flag()? { T::walk(cursor, depth, visitor) } else { Ok(()) }
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

/// The arm of a union for every value of the discriminant that it does not name: none.
pub enum Undefined {}

impl Xdr for Undefined {
    #[inline(always)]
    fn skip(_: &mut Cursor<'_>, _: Depth) -> Result<(), XdrError> {
        Err(XdrError::UnknownValue)
    }
}

/// Declares types whose values are skipped as a whole.
macro_rules! schema {
    ($($kind:tt $name:ident $(($switch:ident))? { $($body:tt)* })*) => {
        $(define! { none $kind $name $(($switch))? { $($body)* } })*
    };
}

/// Declares parts, and types that hold them.
macro_rules! visited {
    ($($kind:tt $name:ident $(($switch:ident))? { $($body:tt)* })*) => {
        $(define! { (visitor) $kind $name $(($switch))? { $($body)* } })*
    };
}

/// Declares one type. The first argument names the parameter for the visitor, if there is one.
macro_rules! define {
    ($visitor:tt part $name:ident { $type:ty }) => {
        pub enum $name {}

        impl Xdr for $name {
            #[inline(always)]
            fn skip(cursor: &mut Cursor<'_>, depth: Depth) -> Result<(), XdrError> {
                <$type as Xdr>::skip(cursor, depth)
            }

            #[inline(always)]
            fn walk<'a, V: Visit<'a>>(
                cursor: &mut Cursor<'a>,
                depth: Depth,
                visitor: &mut V,
            ) -> Result<(), XdrError> {
                let start = *cursor;
                <$type as Xdr>::walk(cursor, depth, visitor)?;
                visitor.visit(Part::$name, start.up_to(cursor))
            }
        }
    };
    ($visitor:tt typedef $name:ident { $type:ty }) => {
        define! { $visitor struct $name { inner: $type } }
    };
    ($visitor:tt struct $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        pub enum $name {}

        impl Xdr for $name {
            const FIXED: Option<Fixed> = Fixed::enclosing(&[$(<$type as Xdr>::FIXED),*]);

            method! { () struct { $($type),* } }
            method! { $visitor struct { $($type),* } }
        }
    };
    ($visitor:tt enum $name:ident { $($member:ident = $value:literal),* $(,)? }) => {
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
    ($visitor:tt union $name:ident (Int32) { $($case:literal => $arm:ty),* $(,)? }) => {
        define! { @union $visitor $name Int32 { $($case => $arm,)* } Undefined }
    };
    ($visitor:tt union $name:ident ($switch:ident) {
        $($($case:ident)|+ => $arm:ty),* $(,)?
    }) => {
        define! { @union $visitor $name $switch { $($($switch::$case)|+ => $arm,)* } Undefined }
    };
    ($visitor:tt union $name:ident ($switch:ident) {
        $($($case:ident)|+ => $arm:ty,)* _ => $rest:ty $(,)?
    }) => {
        define! { @union $visitor $name $switch { $($($switch::$case)|+ => $arm,)* } $rest }
    };
    (@union $visitor:tt $name:ident $switch:ident { $($case:pat => $arm:ty,)* } $rest:ty) => {
        pub enum $name {}

        impl Xdr for $name {
            method! { () union $switch { $($case => $arm,)* } $rest }
            method! { $visitor union $switch { $($case => $arm,)* } $rest }
        }
    };
}

/// Defines `skip`, or `walk` if the first argument names a visitor.
macro_rules! method {
    (none $($shape:tt)*) => {};
    ($visitor:tt struct { $($type:ty),* }) => {
        method! { @define $visitor cursor depth {
            if let Some(fixed) = Self::FIXED {
                return fixed.skip(cursor, depth, 1);
            }
            let depth = depth.enter()?;
            $(go! { $visitor $type, cursor, depth }?;)*
            Ok(())
        } }
    };
    ($visitor:tt union $switch:ident { $($case:pat => $arm:ty,)* } $rest:ty) => {
        method! { @define $visitor cursor depth {
            let depth = depth.enter()?;
            depth.allow(1)?;
            match $switch::read(cursor, depth)? {
                $($case => go! { $visitor $arm, cursor, depth },)*
                #[allow(unreachable_patterns)]
                _ => go! { $visitor $rest, cursor, depth },
            }
        } }
    };
    (@define () $cursor:ident $depth:ident $body:block) => {
        #[inline]
        fn skip($cursor: &mut Cursor<'_>, $depth: Depth) -> Result<(), XdrError> $body
    };
    (@define ($visitor:ident) $cursor:ident $depth:ident $body:block) => {
        #[inline]
        fn walk<'a, V: Visit<'a>>(
            $cursor: &mut Cursor<'a>,
            $depth: Depth,
            $visitor: &mut V,
        ) -> Result<(), XdrError> $body
    };
}

/// Skips or walks a value.
macro_rules! go {
    (() $type:ty, $cursor:ident, $depth:ident) => {
        <$type as Xdr>::skip($cursor, $depth)
    };
    (($visitor:ident) $type:ty, $cursor:ident, $depth:ident) => {
        <$type as Xdr>::walk($cursor, $depth, $visitor)
    };
}

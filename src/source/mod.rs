//! Where closed ledgers come from. Knows how their bytes are obtained; decodes only what it takes
//! to put them in order.

pub mod sandbox;

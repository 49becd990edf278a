//! Snapshots of a data directory in a bucket, with the built binary: what is restored is what was there, whatever
//! was damaged, killed or written by others meanwhile; and readers, until they are promoted.

mod damage;
mod encrypted;
mod keep;
mod kills;
mod places;
mod readers;
mod restored;
mod world;

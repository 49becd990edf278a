//! Iceberg's tables of an export, read back: by a second implementation of the formats, through every kill of
//! a writer, with many files, and by the engines that are installed.

mod avro;
mod disk;
mod kills;
mod model;
mod readers;
mod served;
mod size;

//! The site in a browser: its pages against the real service, with real and with hostile data.
//!
//! `ORRERY_TEST_CHROMIUM` names a directory in which `npm install playwright-core axe-core` was run;
//! the browser is `/usr/bin/chromium`, or the one that `CHROMIUM` names. Without them these tests
//! say that they are skipped. `ORRERY_TEST_PICTURES` names a directory for pictures of all pages.

mod attacks;
mod browser;
mod clipped;
mod code;
mod contracts;
mod documents;
mod figures;
mod first_look;
mod hostile;
mod keyboard;
mod modules;
mod names;
mod operate;
mod pages;
mod plain;
mod readers;
mod retention;
mod statements;
mod storage;
mod tabs;
mod truth;
mod values;
mod watching;
mod world;

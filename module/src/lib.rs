//! module

//! The configuration object of a device: raw input becomes settings and complaints.

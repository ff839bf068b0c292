//! Bodies of the fuzz targets.

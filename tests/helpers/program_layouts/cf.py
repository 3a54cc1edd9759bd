"""Layouts of climate, weather and ocean models, of reanalyses and of satellites."""

from __future__ import annotations

from program_layouts.files import CfLayout

DAYS = "days since 2000-01-01"
HOURS = "hours since 1900-01-01;;6"
PACKED = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 250.0, "_FillValue": -32767}

CF_LAYOUTS: dict[str, CfLayout] = {
    "wrf": CfLayout(
        "Time=none|south_north=none|west_east=none|west_east_stag=none#west_east+1",
        "T2:Time,south_north,west_east Q2:Time,south_north,west_east",
        "U:Time,south_north,west_east_stag",
        "XLAT:south_north,west_east XLONG:south_north,west_east",
        time="Time",
        vectors="XTIME:Time=minutes since 2000-01-01;;60",
    ),
    "wrf_levels": CfLayout(
        "Time=minutes since 2000-01-01;;60|bottom_top=none#8|south_north=none|west_east=none",
        "T:Time,bottom_top,south_north,west_east QVAPOR:Time,bottom_top,south_north,west_east",
        "PSFC:Time,south_north,west_east",
    ),
    "roms": CfLayout(
        "ocean_time=seconds since 2000-01-01;;3600|s_rho=none#8|eta_rho=none|xi_rho=none|"
        "xi_u=none#xi_rho-1",
        "temp:ocean_time,s_rho,eta_rho,xi_rho salt:ocean_time,s_rho,eta_rho,xi_rho",
        "zeta:ocean_time,eta_rho,xi_rho u:ocean_time,s_rho,eta_rho,xi_u",
        "lat_rho:eta_rho,xi_rho lon_rho:eta_rho,xi_rho",
    ),
    "croco": CfLayout(
        "time=seconds since 2000-01-01;;3600|eta_rho=none|xi_rho=none",
        "zeta:time,eta_rho,xi_rho",
        coordinates="lat_rho:eta_rho,xi_rho lon_rho:eta_rho,xi_rho",
        record=True,
    ),
    "nemo": CfLayout(
        "time_counter=seconds since 1900-01-01;noleap;86400|deptht=depth#8|y=none|x=none",
        "thetao:time_counter,deptht,y,x so:time_counter,deptht,y,x",
        "zos:time_counter,y,x",
        "nav_lat:y,x nav_lon:y,x",
        attributes={"coordinates": "nav_lat nav_lon"},
        record=True,
    ),
    "mom6": CfLayout(
        "Time=days since 0001-01-01;noleap|zl=depth#8|yh=lat|xh=lon",
        "thetao:Time,zl,yh,xh",
        "ssh:Time,yh,xh",
    ),
    "cam_hybrid": CfLayout(
        "time=days since 0001-01-01;noleap|lev=plev#8|lat=lat|lon=lon|nbnd=none#2",
        "T:time,lev,lat,lon Q:time,lev,lat,lon",
        "PS:time,lat,lon hyam:lev hybm:lev",
        attributes={"cell_methods": "time: mean"},
    ),
    "cesm_ocean": CfLayout(
        "time=days since 0000-01-01;noleap;30|nlat=none|nlon=none|d2=none#2",
        "SST:time,nlat,nlon",
        coordinates="TLAT:nlat,nlon TLONG:nlat,nlon",
        attributes={"coordinates": "TLONG TLAT time"},
    ),
    "era5_packed": CfLayout(
        f"time={HOURS}|latitude=-lat|longitude=lon",
        "t2m:time,latitude,longitude",
        packing=PACKED,
    ),
    "era5_valid_time": CfLayout(
        "valid_time=seconds since 1970-01-01;;3600|latitude=-lat|longitude=lon",
        "t2m:valid_time,latitude,longitude d2m:valid_time,latitude,longitude",
        scalars={"number": (0, {"standard_name": "realization"})},
    ),
    "era5_expver": CfLayout(
        "valid_time=seconds since 1970-01-01;;3600|expver=member#2|latitude=-lat|longitude=lon",
        "t2m:valid_time,expver,latitude,longitude",
        members="expver",
    ),
    "era5_levels": CfLayout(
        f"valid_time={HOURS}|pressure_level=plev#8|latitude=-lat|longitude=lon",
        "z:valid_time,pressure_level,latitude,longitude",
        units="m**2 s**-2",
    ),
    "cfgrib": CfLayout(
        "time=hours since 2000-01-01;;6|isobaricInhPa=plev#8|latitude=-lat|longitude=lon",
        "t:time,isobaricInhPa,latitude,longitude",
        scalars={"step": (0.0, {"long_name": "time since forecast_reference_time"})},
    ),
    "cmip6_360_day": CfLayout(
        "time=days since 1850-01-01;360_day;30|lat=lat|lon=lon|bnds=none#2",
        "tas:time,lat,lon",
        "lat_bnds:lat,bnds",
        scalars={"height": (2.0, {"units": "m", "axis": "Z"})},
    ),
    "cmip6_noleap": CfLayout(
        "time=days since 1850-01-01;noleap|plev=plev#8|lat=lat|lon=lon",
        "ua:time,plev,lat,lon",
        units="m s-1",
        record=True,
    ),
    "cmip6_julian": CfLayout(
        "time=days since 1850-01-01;julian|lat=lat|lon=lon", "pr:time,lat,lon"
    ),
    "cordex": CfLayout(
        f"time={DAYS}|rlat=rlat|rlon=rlon",
        "tas:time,rlat,rlon",
        coordinates="lat:rlat,rlon lon:rlat,rlon",
        attributes={"coordinates": "lat lon", "grid_mapping": "rotated_pole"},
        scalars={"rotated_pole": (0, {"grid_mapping_name": "rotated_latitude_longitude"})},
    ),
    "cosmo": CfLayout(
        f"time={HOURS}|level=bare#8|rlat=rlat|rlon=rlon", "T:time,level,rlat,rlon", record=True
    ),
    "oisst": CfLayout(
        "time=days since 1978-01-01|zlev=depth#1|lat=lat|lon=lon",
        "sst:time,zlev,lat,lon",
        units="Celsius",
        packing={**PACKED, "add_offset": 0.0},
    ),
    "hycom": CfLayout(
        "MT=days since 1900-12-31|Y=none|X=none",
        "ssh:MT,Y,X",
        coordinates="Latitude:Y,X Longitude:Y,X",
        scalars={"Depth": (0.0, {"units": "m"})},
    ),
    "xmitgcm": CfLayout(
        "time=seconds since 2000-01-01;;86400|Z=depth#8|YC=lat|XC=lon|XG=lon",
        "THETA:time,Z,YC,XC SALT:time,Z,YC,XC",
        "UVEL:time,Z,YC,XG",
    ),
    "gfdl_fv3": CfLayout(
        f"time={HOURS}|pfull=plev#8|grid_yt=lat|grid_xt=lon", "temp:time,pfull,grid_yt,grid_xt"
    ),
    "icon_latlon": CfLayout(
        f"time={HOURS}|height=bare#8|lat=lat|lon=lon",
        "ta:time,height,lat,lon",
        attributes={"CDI_grid_type": "lonlat"},
    ),
    "ensemble_number": CfLayout(
        f"time={HOURS}|number=member#3|latitude=-lat|longitude=lon",
        "t2m:time,number,latitude,longitude",
        members="number",
    ),
    "hindcast_step": CfLayout(
        "number=member#3|step=time|latitude=-lat|longitude=lon",
        "t2m:number,step,latitude,longitude",
        members="number",
        scalars={"time": (0.0, {"units": "hours since 2000-01-01"})},
    ),
    "cmems": CfLayout(
        "time=hours since 1950-01-01;;24|depth=depth#8|latitude=lat|longitude=lon",
        "uo:time,depth,latitude,longitude",
        units="m s-1",
        packing={**PACKED, "zlib": True, "chunksizes": (1, 8, 8, 8)},
    ),
    "modis": CfLayout(
        f"time={DAYS}|lat=-lat|lon=lon",
        "lai:time,lat,lon",
        units="1",
        packing={"dtype": "int16", "scale_factor": 0.1, "_FillValue": -28672},
    ),
    "palm": CfLayout(
        "time=seconds since 2000-01-01;;10|zu_3d=x#8|y=x|x=x|xu=x",
        "theta:time,zu_3d,y,x q:time,zu_3d,y,x",
        "u:time,zu_3d,y,xu",
    ),
    "dales": CfLayout("time=time|zt=x#8|yt=x|xt=x", "thl:time,zt,yt,xt qt:time,zt,yt,xt"),
    "grads": CfLayout(
        "time=hours since 1-1-1 00:00:0.0;;6|lev=plev#8|lat=lat|lon=lon", "hgt:time,lev,lat,lon"
    ),
    "openifs_xios": CfLayout(
        "time_counter=seconds since 2000-01-01;;3600|pressure_levels=plev#8|lat=-lat|lon=lon",
        "ta:time_counter,pressure_levels,lat,lon",
        record=True,
    ),
    "lmdz": CfLayout(
        "time_counter=seconds since 1980-01-01;360_day;86400|presnivs=plev#8|lat=-lat|lon=lon",
        "temp:time_counter,presnivs,lat,lon",
        "tsol:time_counter,lat,lon",
    ),
    "delft3d": CfLayout(
        "time=seconds since 2000-01-01;;600|M=none|N=none", "S1:time,M,N", units="m"
    ),
    "oceananigans": CfLayout(
        "time=time|zC=x#8|yC=x|xC=x|xF=x", "b:time,zC,yC,xC c:time,zC,yC,xC", "u:time,zC,yC,xF"
    ),
    "veros": CfLayout(f"Time={DAYS}|zt=depth#8|yt=lat|xt=lon", "temp:Time,zt,yt,xt", record=True),
    "bout": CfLayout("t=time|x=none|y=none", "n:t,x,y vort:t,x,y"),
    "merra2": CfLayout(
        "time=minutes since 2000-01-01;;180|lev=plev#8|lat=lat|lon=lon", "T:time,lev,lat,lon"
    ),
    "ncep": CfLayout(
        "time=hours since 1800-01-01;;24|lat=-lat|lon=lon", "air:time,lat,lon", names="air{}.cdf"
    ),
    "cm1": CfLayout(
        "time=seconds since 2000-01-01;;60|zh=x#8|yh=x|xh=x", "th:time,zh,yh,xh", record=True
    ),
    "um": CfLayout(
        "t=days since 1859-12-01;360_day|ht=bare#8|latitude=lat|longitude=lon",
        "temp:t,ht,latitude,longitude",
    ),
    "daymet": CfLayout(
        f"time={DAYS}|y=x|x=x",
        "tmax:time,y,x",
        coordinates="lat:y,x lon:y,x",
        attributes={"grid_mapping": "lambert_conformal_conic"},
        scalars={"lambert_conformal_conic": (0, {"grid_mapping_name": "lambert_conformal_conic"})},
    ),
    "netcdf3_records": CfLayout(
        f"time={DAYS}|lat=lat|lon=lon",
        "u:time,lat,lon v:time,lat,lon",
        names="a{}.cdf",
        record=True,
    ),
    "weatherbench2": CfLayout(
        f"time={HOURS}|level=plev#8|longitude=lon|latitude=lat",
        "temperature:time,level,longitude,latitude",
        names="wb{}.zarr",
        packing={"chunks": (1, 8, 8, 8)},
    ),
    "arco_era5": CfLayout(
        f"time={HOURS}|latitude=-lat|longitude=lon",
        "t2m:time,latitude,longitude",
        names="ar{}.zarr",
        packing={"zarr_format": 2, "chunks": (1, 8, 8)},
    ),
    "cesm_lens": CfLayout(
        "member_id=member#3|time=days since 1850-01-01;noleap;30|nlat=none|nlon=none",
        "SST:member_id,time,nlat,nlon",
        names="lens{}.zarr",
        members="member_id",
    ),
    "yearly_files": CfLayout(
        f"time={DAYS}|lat=lat|lon=lon", "tas:time,lat,lon", files=3, names="tas_{}.nc", one_run=True
    ),
    "runs": CfLayout("time=time|y=x|x=x", "u:time,y,x v:time,y,x", files=4),
    "time_last": CfLayout("y=x|x=x|time=time", "u:y,x,time"),
    "exner_bare": CfLayout("time=time|z=bare#8|x=bare", "pi:time,z,x"),
}

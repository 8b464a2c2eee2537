#!/bin/sh
# Makes an LV2 plug-in of a model that `penstock train in.wav --target out.wav -o amp.safetensors` trained:
#
#   build.sh amp.safetensors NAME [FOLDER]
#
# The bundle is FOLDER/penstock-NAME.lv2; FOLDER is ~/.lv2 unless it is given. Needs LV2's headers (Debian: lv2-dev) and
# the C runtime, which pkg-config finds or PENSTOCK_FLAGS names ("-Iinclude libpenstock_runtime.a -lstdc++ -lm").
set -eu
model=${1:?usage: build.sh MODEL NAME [FOLDER]} name=${2:?usage: build.sh MODEL NAME [FOLDER]}
case $name in *[!a-z0-9-]*) echo "build.sh: NAME must be of a-z, 0-9 and -, not '$name'" >&2; exit 2 ;; esac
here=$(dirname "$0") bundle=${3:-$HOME/.lv2}/penstock-$name.lv2 uri=urn:penstock:$name
flags=${PENSTOCK_FLAGS:-$(pkg-config --cflags --libs penstock-runtime)}
mkdir -p "$bundle"
# shellcheck disable=SC2086 # flags are several words
${CC:-cc} -std=c11 -O2 -Wall -Wextra -fPIC -shared -fvisibility=hidden "-DPLUGIN_URI=\"$uri\"" "$here/amplifier.c" \
  $flags -lm -o "$bundle/amplifier.so"
cp "$model" "$bundle/model.safetensors"
cat >"$bundle/manifest.ttl" <<TTL
@prefix lv2: <http://lv2plug.in/ns/lv2core#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
<$uri> a lv2:Plugin ; lv2:binary <amplifier.so> ; rdfs:seeAlso <amplifier.ttl> .
TTL
port() { # INDEX DIRECTION TYPE SYMBOL LABEL [MORE]
  echo "[ a lv2:$2Port, lv2:$3Port ; lv2:index $1 ; lv2:symbol \"$4\" ; lv2:name \"$5\" ${6:-} ]"
}
decibels='; lv2:default 0.0 ; lv2:minimum -40.0 ; lv2:maximum 40.0 ; units:unit units:db'
cat >"$bundle/amplifier.ttl" <<TTL
@prefix doap: <http://usefulinc.com/ns/doap#> .
@prefix lv2: <http://lv2plug.in/ns/lv2core#> .
@prefix log: <http://lv2plug.in/ns/ext/log#> .
@prefix units: <http://lv2plug.in/ns/extensions/units#> .
@prefix urid: <http://lv2plug.in/ns/ext/urid#> .
<$uri> a lv2:Plugin, lv2:SimulatorPlugin ;
  doap:name "Penstock $name" ;
  lv2:optionalFeature lv2:hardRTCapable, log:log, urid:map ;
  lv2:port
    $(port 0 Input Audio in In) ,
    $(port 1 Output Audio out Out) ,
    $(port 2 Input Control gain Gain "$decibels") ,
    $(port 3 Input Control level Level "$decibels") .
TTL
echo "$bundle"

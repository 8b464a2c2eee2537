# The program and the C++ library on Debian 12.
#   docker build -t penstock .
#   docker run --rm -v "$PWD:/data" penstock train book.txt
FROM debian:bookworm-slim AS build
WORKDIR /penstock
COPY . .
# tools/setup.sh installs what the build needs.
RUN apt-get update && tools/setup.sh build \
    && cmake --preset release -D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=20 \
    && cmake --build --preset release --parallel "$(nproc)" \
    && cmake --install build/release --prefix /opt/penstock

FROM debian:bookworm-slim
# The shared libraries that the program is linked with.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libdnnl2 libfmt9 libgomp1 libhwy1 liblzma5 libsndfile1 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/penstock /usr/local
WORKDIR /data
ENTRYPOINT ["penstock"]

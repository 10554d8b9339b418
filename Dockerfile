# SPDX-License-Identifier: Apache-2.0
# The driver's image, for those who have a container engine: hack/image/docker-build BASE_IMAGE
#
# BASE_IMAGE brings Python 3.11 or newer with pip, on glibc; it has no default, and must be
# pinned by digest. Nothing of it is in the image but what hack/image/collect.py takes.
ARG BASE_IMAGE

FROM ${BASE_IMAGE} AS build
ARG BASE_IMAGE
COPY hack/image/require-digest /source/hack/image/
RUN ["/bin/sh", "-c", "/source/hack/image/require-digest \"$BASE_IMAGE\""]
COPY hack/image /source/hack/image
COPY requirements /source/requirements
COPY pyproject.toml README.md LICENSE /source/
COPY deviceclasses /source/deviceclasses
COPY docs/man /source/docs/man
COPY dra_driver /source/dra_driver
RUN ["python3", "/source/hack/image/collect.py", "--root", "/image"]

FROM scratch
COPY --from=build /image /
# Without a fixed threshold the C library keeps megabytes for each thread that once needed them. One
# heap for all threads is enough, because Python lets only one of them work at a time.
ENV PATH=/usr/local/bin:/usr/bin LANG=C.UTF-8 MALLOC_MMAP_THRESHOLD_=131072 MALLOC_ARENA_MAX=1
# Root without any capability: the kubelet's directories are root's.
# hadolint ignore=DL3002
USER 0:0
WORKDIR /
ENTRYPOINT ["/usr/local/bin/dra-driver"]
CMD ["run"]

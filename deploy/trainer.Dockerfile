# An example trainer, one of examples/:
#   docker build -f deploy/trainer.Dockerfile -t trainer:0.1.0 .
#   docker build -f deploy/trainer.Dockerfile -t ddp:0.1.0 --build-arg BASE=pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime \
#     --build-arg EXAMPLE=pytorch-ddp --build-arg PACKAGES= .
# Swell brings its in-job library along: the image needs what the training itself imports.
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG PACKAGES=numpy
RUN [ -z "$PACKAGES" ] || pip install --no-cache-dir $PACKAGES
ARG EXAMPLE=numpy
COPY examples/${EXAMPLE} /app
WORKDIR /app
CMD ["python", "train.py"]

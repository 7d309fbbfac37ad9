# CPU by default:        docker build -t inphase .
# GPU by an argument:    docker build -t inphase:gpu --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
# Run on your videos:    docker run --rm -v "$PWD:/work" inphase align student.mp4 pro.mp4 --out aligned
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=pose,viewer,compare,corpus
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/inphase \
    && /opt/inphase/bin/pip install --no-cache-dir --constraint constraints.txt --extra-index-url "${TORCH_INDEX}" ".[${EXTRAS}]"

FROM python:${PYTHON}-slim
COPY --from=build /opt/inphase /opt/inphase
ENV PATH=/opt/inphase/bin:$PATH \
    XDG_CACHE_HOME=/cache
RUN useradd --create-home --uid 1000 inphase && mkdir /cache /work && chown 1000 /cache /work
USER 1000
WORKDIR /work
VOLUME ["/cache"]
ENTRYPOINT ["inphase"]
CMD ["--help"]

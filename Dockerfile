# Untried: written by the documentation of Docker, and not built yet.
#
#   docker build -t transformer .
#   echo "Where is the station?" | docker run -i transformer translate en-de
#   docker run -p 127.0.0.1:5000:5000 transformer serve en-de de-en --host 0.0.0.0
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /project
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . ./models/en-de ./models/de-en

FROM python:3.11-slim
COPY --from=build /wheels /wheels
COPY constraints.txt /
RUN pip install --no-cache-dir --constraint /constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
    "$(echo /wheels/transformer-*.whl)[serve]" /wheels/transformer_model_*.whl \
    && rm -r /wheels
EXPOSE 5000
USER nobody
ENV HOME=/tmp
ENTRYPOINT ["transformer"]
CMD ["--help"]

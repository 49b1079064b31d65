# Untried: written by the documentation of Docker, and not built yet.
#
#   docker build -t transformer .
#   echo "Where is the station?" | docker run -i transformer translate en-de
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /project
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . ./models/en-de ./models/de-en

FROM python:3.11-slim
COPY --from=build /wheels /wheels
COPY constraints.txt /
RUN pip install --no-cache-dir --constraint /constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu /wheels/*.whl \
    && rm -r /wheels
USER nobody
ENV HOME=/tmp
ENTRYPOINT ["transformer"]
CMD ["--help"]

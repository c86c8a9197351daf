# HikariCP and the drivers of Java that its connections are made of, as Maven's artifacts. $2: HikariCP's
# version; then, for each driver, the name of its directory, and its group, artifact and version.

# Copies an artifact and what it depends on to a directory.
copy() {
    directory=$1
    group=$2
    artifact=$3
    version=$4
    mkdir -p "$directory.pom"
    cat >"$directory.pom/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>evenkeel.compat</groupId>
  <artifactId>drivers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>$group</groupId>
      <artifactId>$artifact</artifactId>
      <version>$version</version>
    </dependency>
  </dependencies>
</project>
POM
    mvn --batch-mode --quiet --file "$directory.pom/pom.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$work/suite/$directory"
    ls "$work/suite/$directory/$artifact-$version.jar"
}

copy pool com.zaxxer HikariCP "$2"
shift 2
while [ $# -ge 4 ]; do
    copy "$1" "$2" "$3" "$4"
    shift 4
done
keep

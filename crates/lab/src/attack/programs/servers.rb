# Servers of Ruby: each records each complete request as a line of JSON, and answers with its target.
require 'json'
SERVER, PORT, LOG = ARGV

def write(method, target, host, body, fields)
  record = { method: method, target: target, host: host, body: body.unpack1('H*'), fields: fields }
  File.open(LOG, 'a') { |log| log.syswrite(JSON.generate(record) + "\n") }
end

def utf8(text)
  text.to_s.b.encode('UTF-8', 'ISO-8859-1')
end

def puma
  require 'puma'
  require 'puma/server'
  application = lambda do |environment|
    body = environment['rack.input'].read
    target = utf8(environment['REQUEST_URI'])
    names = environment.keys.select { |name| name.start_with?('HTTP_') && name != 'HTTP_VERSION' }
    names.delete('HTTP_TRANSFER_ENCODING')
    fields = names.flat_map { |name| [name[5..].tr('_', '-'), utf8(environment[name])] }
    write(environment['REQUEST_METHOD'], target, utf8(environment['HTTP_HOST']), body, fields)
    [200, { 'content-type' => 'text/plain', 'content-length' => target.length.to_s }, [target]]
  end
  server = Puma::Server.new(application, nil, { min_threads: 0, max_threads: 32 })
  server.add_tcp_listener('127.0.0.1', PORT.to_i)
  server.run.join
end

def webrick
  require 'webrick'
  quiet = WEBrick::Log.new(File::NULL)
  server = WEBrick::HTTPServer.new(BindAddress: '127.0.0.1', Port: PORT.to_i, Logger: quiet,
                                   AccessLog: [], MaxClients: 200)
  servlet = Class.new(WEBrick::HTTPServlet::AbstractServlet) do
    def service(request, response)
      body = request.body || ''
      # The server itself joins slashes at the beginning of a path.
      target = utf8(request.request_line.split(' ')[1])
      fields = []
      request.header.each { |name, values| values.each { |value| fields.push(name, utf8(value)) } }
      write(request.request_method, target, utf8(request['host']), body, fields)
      response.status = 200
      response['Content-Type'] = 'text/plain'
      response.body = target
    end
  end
  server.mount('/', servlet)
  server.start
end

{ 'puma' => method(:puma), 'webrick' => method(:webrick) }.fetch(SERVER).call

import java.nio.file.*;
import java.util.*;
import java.util.stream.Stream;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.DefaultConfiguration;
import org.opensearch.Version;
import org.opensearch.analysis.common.CommonAnalysisModulePlugin;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.http.HttpServerTransport;
import org.opensearch.index.mapper.MapperExtrasModulePlugin;
import org.opensearch.index.reindex.ReindexModulePlugin;
import org.opensearch.node.*;
import org.opensearch.painless.PainlessModulePlugin;
import org.opensearch.plugins.*;
import org.opensearch.transport.Netty4ModulePlugin;

/** One OpenSearch node. Arguments are settings, name=value; its address is in the file url when it answers. */
class Launcher extends Node {
    /** Only heirs of Node may name plugins of the class path. */
    Launcher(Environment environment) {
        super(
            environment,
            plugins(Netty4ModulePlugin.class, CommonAnalysisModulePlugin.class, MapperExtrasModulePlugin.class, ReindexModulePlugin.class, PainlessModulePlugin.class),
            false
        );
    }

    @SafeVarargs
    static List<PluginInfo> plugins(Class<? extends Plugin>... classes) {
        return Stream.of(classes).map(Launcher::plugin).toList();
    }

    static PluginInfo plugin(Class<? extends Plugin> plugin) {
        String name = plugin.getName();
        return new PluginInfo(name, "of the class path", "", Version.CURRENT, "21", name, null, List.of(), false);
    }

    public static void main(String[] arguments) throws Exception {
        Configurator.initialize(new DefaultConfiguration());
        Settings.Builder settings = Settings.builder()
            .put("network.host", "127.0.0.1")
            .put("transport.port", 0)
            .put("transport.type", "netty4")
            .put("http.type", "netty4")
            .put("discovery.type", "single-node")
            .put("node.processors", 2)
            // Neither a full disk nor garbage that was not yet collected shall decide how a test ends.
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .put("indices.breaker.total.use_real_memory", false);
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        Environment environment = InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), null, () -> "vitrina");
        Node node = new Launcher(environment).start();
        tell(node, Path.of(node.settings().get("path.home")));
        // The threads of a node keep no process alive.
        Thread.currentThread().join();
    }

    /** The file is there as a whole or not at all. */
    static void tell(Node node, Path home) throws Exception {
        int port = node.injector().getInstance(HttpServerTransport.class).boundAddress().publishAddress().getPort();
        String url = "http://127.0.0.1:" + port;
        Files.move(Files.writeString(home.resolve("url.new"), url), home.resolve("url"), StandardCopyOption.ATOMIC_MOVE);
        System.out.println(url);
    }
}
